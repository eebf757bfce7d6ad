"""Forecasts of starts: run times that are still possible, places in the plan's order, and what outcomes teach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.expected_starts.calibration import LEAST_OUTCOMES, STEP, StartCalibration, StartOutcome
from slurm_soda.policies.expected_starts.forecast import ForecastInProgress, StartForecast, forecast_starts
from slurm_soda.policies.expected_starts.run_time_draws import draw_remaining_s
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS, EDGES_S, find_bins
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable

HOUR_S = 3600.0


def on_node(node: int, gpus: int, remaining_s: float, **more: Any) -> dict[str, Any]:
    return {
        "state": JobState.RUNNING, "gpus": gpus, "remaining_s": remaining_s, "alloc": [(node, gpus, 0)],
        "start_s": 0.0, **more,
    }  # fmt: skip


def snapshot(rows: Sequence[dict[str, Any]], nodes: int = 2, gpus: int = 4) -> ClusterSnapshot:
    """Jobs 1, 2, … on a cluster of which they hold what they say."""
    table = build_job_table([{"job_id": at + 1, **row} for at, row in enumerate(rows)])
    uniform = NodeTable.uniform(nodes, gpus)
    free = uniform.gpus_free.copy()
    np.subtract.at(free, table.alloc_node, table.alloc_gpus)
    return ClusterSnapshot(now_s=100.0, jobs=table, nodes=replace(uniform, gpus_free=free))


def starts(seen: ClusterSnapshot) -> dict[int, float]:
    """Of run times that are known, so that all futures are one."""
    found = forecast_starts(seen, Fifo().decide(seen), seed=1)
    assert found.low_s.tolist() == found.median_s.tolist() == found.high_s.tolist()
    return dict(zip(found.job_id.tolist(), found.median_s.tolist(), strict=True))


TABLE = {
    "the first to end makes room": (
        [on_node(0, 4, 50.0), on_node(1, 4, 80.0), {"gpus": 4, "remaining_s": 10.0}], {3: 50.0}),
    "the next one waits for the one before": (
        [on_node(0, 4, 50.0), on_node(1, 4, 80.0), {"gpus": 4, "remaining_s": 10.0}, {"gpus": 4, "remaining_s": 5.0}],
        {3: 50.0, 4: 60.0}),
    "a small one passes where a large one does not fit": (
        [on_node(0, 2, 50.0), on_node(1, 4, 80.0), {"gpus": 8, "nodes": 2, "gpus_per_node": 4, "remaining_s": 7.0},
         {"gpus": 2, "remaining_s": 20.0}], {3: 80.0, 4: 0.0}),
    "a gang waits for both its nodes": (
        [on_node(0, 4, 50.0), on_node(1, 1, 80.0), {"gpus": 8, "nodes": 2, "gpus_per_node": 4, "remaining_s": 7.0}],
        {3: 80.0}),
    "one node's holes are not another's": (
        [on_node(0, 2, 50.0), on_node(1, 2, 60.0), {"gpus": 4, "gpus_per_node": 4, "remaining_s": 7.0}], {3: 50.0}),
    "one that completes is as good as gone": (
        [on_node(0, 4, 50.0, state=JobState.COMPLETING), on_node(1, 4, 80.0), {"gpus": 4}], {3: 1.0}),
    "a time limit ends it": (
        [on_node(0, 4, 5000.0, time_limit_s=300.0), on_node(1, 4, 900.0), {"gpus": 4}], {3: 200.0}),
    "too large for all nodes: nothing is said": ([on_node(0, 4, 50.0), {"gpus": 16}], {}),
    "held: nothing is said": ([on_node(0, 4, 50.0), {"gpus": 4, "state": JobState.BLOCKED}], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_starts_follow_from_known_run_times(name: str) -> None:
    rows, expected = TABLE[name]
    assert starts(snapshot(rows)) == expected


def test_without_a_plan_slurms_priority_is_the_order() -> None:
    seen = snapshot(
        [on_node(0, 4, 50.0), {"gpus": 4, "priority": 1, "remaining_s": 9.0}, {"gpus": 4, "priority": 2}], 1
    )
    found = forecast_starts(seen, None, seed=1)
    assert found.job_id.tolist() == [3, 2]
    requeued = seen.jobs.with_columns(priority=np.ones(3, dtype=np.int64), queued_s=np.array([0.0, 9.0, 8.0]))
    assert forecast_starts(replace(seen, jobs=requeued), None, seed=1).job_id.tolist() == [3, 2]


def test_a_preempted_job_makes_room_at_once() -> None:
    seen = snapshot([on_node(0, 4, 50.0), {"gpus": 4}], 1)
    plan = Fifo().decide(seen)
    plan = replace(plan, actions=(PreemptJob(job_id=1, for_jobs=(2,), reason="because"),))
    assert forecast_starts(seen, plan, seed=1).high_s.tolist() == [0.0]


def learned(seen: ClusterSnapshot, run_s: Sequence[float], worked_s: float) -> ClusterSnapshot:
    """All jobs are of a kind that ran for one of these times, each as likely."""
    probability = np.full(BINS, 1e-12)
    np.add.at(probability, find_bins(np.array(run_s)), 1.0 / len(run_s))
    jobs = len(seen.jobs)
    kinds = ExpectedRunTimes(probability[None], np.zeros(jobs, dtype=np.int64), np.full(jobs, worked_s))
    return replace(seen, run_times=kinds)


def test_drawn_run_times_are_those_still_possible() -> None:
    seen = learned(snapshot([on_node(0, 4, 1.0)], 1), [600.0, 7200.0], worked_s=1800.0)
    left_s = draw_remaining_s(seen, 400, seed=3)[:, 0]
    whole_s = left_s + 1800.0
    at = int(find_bins(np.array([7200.0]))[0])
    assert whole_s.min() >= EDGES_S[at] * 0.999, "it has run for longer than 600 s"
    assert whole_s.max() <= EDGES_S[at + 1] * 1.001
    fresh = draw_remaining_s(learned(seen, [600.0, 7200.0], worked_s=0.0), 400, seed=3)[:, 0]
    assert 0.4 < np.mean(fresh < 1000.0) < 0.6


def test_of_an_unknown_job_any_time_up_to_its_limit_is_possible() -> None:
    seen = snapshot([on_node(0, 4, float("nan"), time_limit_s=HOUR_S)], 1)
    left_s = draw_remaining_s(seen, 500, seed=1)[:, 0]
    assert left_s.min() >= 1.0
    assert left_s.max() == HOUR_S - 100.0
    assert 0.2 < np.mean(left_s < 60.0) < 0.6


def test_the_seed_alone_decides_however_the_work_is_divided() -> None:
    seen = learned(snapshot([on_node(0, 4, 1.0), on_node(1, 4, 1.0), *[{"gpus": 2}] * 9]), [60.0, 600.0, 9000.0], 0.0)
    plan = Fifo().decide(seen)
    whole, again, other = (forecast_starts(seen, plan, seed) for seed in (5, 5, 6))
    assert whole.high_s.tolist() == again.high_s.tolist() != other.high_s.tolist()
    assert (whole.low_s <= whole.median_s).all()
    assert (whole.median_s <= whole.high_s).all()
    parts = ForecastInProgress(seen, plan, 5)
    while not parts.complete:
        parts.step()
    assert parts.result().median_s.tolist() == whole.median_s.tolist()


def test_nobody_waits() -> None:
    seen = snapshot([on_node(0, 4, 50.0)])
    assert len(forecast_starts(seen, Fifo().decide(seen), 1).job_id) == 0


def outcome(
    drawn: tuple[float, float, float], waited_s: float, told: tuple[float, float, float] | None = None
) -> StartOutcome:
    return StartOutcome(drawn, told or drawn, waited_s)


def test_the_side_of_an_outcome() -> None:
    ends = (10.0, 20.0, 30.0)
    assert [outcome(ends, waited_s).side for waited_s in (9.0, 10.0, 30.0, 31.0)] == [-1, 0, 0, 1]


def test_forecasts_that_are_always_too_early_are_moved() -> None:
    rng = np.random.default_rng(1)
    middle = np.exp(rng.uniform(4.0, 10.0, 400))
    waits = middle * np.exp(rng.normal(1.0, 0.5, 400))
    past = [outcome((m * 0.95, m, m * 1.05), w) for m, w in zip(middle, waits, strict=True)]
    calibration = StartCalibration(past)
    assert calibration.score.held_ratio < 0.2
    new = np.exp(rng.uniform(5.0, 9.0, 1000))
    told = calibration.apply(StartForecast(0.0, np.arange(1000), new * 0.95, new, new * 1.05))
    held = np.mean((told.low_s <= (truth := new * np.exp(rng.normal(1.0, 0.5, 1000)))) & (truth <= told.high_s))
    assert 0.7 < held < 0.9


def test_few_outcomes_teach_nothing_and_the_interval_is_wide() -> None:
    past = [outcome((1.0, 2.0, 3.0), 500.0)] * (LEAST_OUTCOMES - 1)
    forecast = StartForecast(0.0, np.array([1]), np.array([900.0]), np.array([1000.0]), np.array([1100.0]))
    told, new = StartCalibration(past).apply(forecast), StartCalibration([]).apply(forecast)
    assert (told.low_s[0], told.high_s[0]) == (new.low_s[0], new.high_s[0])
    assert told.low_s[0] < 800.0
    assert told.high_s[0] > 3300.0


def test_misses_on_one_side_widen_that_side() -> None:
    rng = np.random.default_rng(2)
    waits = np.exp(rng.normal(7.0, 0.5, 200))
    drawn = (900.0, 1000.0, 1100.0)
    right = [outcome(drawn, wait, (100.0, 1000.0, 5000.0)) for wait in waits]
    late = [outcome(drawn, wait, (100.0, 1000.0, min(wait - 1, 1001.0))) for wait in np.maximum(waits, 1002.0)]
    forecast = StartForecast(0.0, np.array([1]), *(np.array([end]) for end in drawn))
    calm, worried = (StartCalibration(past).apply(forecast) for past in (right, [*right, *late[:20]]))
    assert worried.high_s[0] > calm.high_s[0] * 1.1
    assert STEP * 20 > 0.1, "as far as the margin goes"

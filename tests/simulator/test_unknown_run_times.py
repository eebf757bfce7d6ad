"""Policies that go by run times, where nobody knows them, or what was said is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.run_time_estimates import FIRST_GUESS_S, expect_remaining_s, find_unknown
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.generators.registry import generate_workload
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.predicted_run_times import with_predicted_run_times
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.workload import Workload
from tests.policies.cases import cluster, mixed_nodes, running, waiting
from tests.sampling import examples

JOBS = st.lists(st.tuples(st.floats(0.0, 600.0), st.floats(1.0, 40_000.0)), min_size=2, max_size=25)


def one_gpu_jobs(gaps_and_runs: Sequence[tuple[float, float]], **columns: Any) -> Workload:
    submit_s = np.cumsum([gap for gap, _ in gaps_and_runs]).tolist()
    rows = [{"submit_s": at, "run_s": run, **columns} for at, (_, run) in zip(submit_s, gaps_and_runs, strict=True)]
    return Workload.build("drawn", rows)


def simulate(workload: Workload, nodes: str, policy: str, estimates: str) -> SimulationOutcome:
    scenario = Scenario(with_estimates(workload, estimates), parse_cluster(nodes), predicted=estimates == "predicted")
    return scenario.run(scenario.policy(policy, {}))


def avg_jct_s(outcome: SimulationOutcome) -> float:
    return float((outcome.end_s - outcome.workload.submit_s).mean())


@given(st.floats(0.0, 1e7))
def test_a_job_of_unknown_run_time_is_taken_to_run_for_twice_as_long_each_time(executed_s: float) -> None:
    jobs = cluster([running(1, (0, 1), executed_s=executed_s)], mixed_nodes(1)).jobs
    total_s = FIRST_GUESS_S
    while total_s <= executed_s:
        total_s *= 2
    assert expect_remaining_s(jobs).tolist() == [total_s - executed_s]


@given(st.floats(1e-6, 1e8), st.floats(0.0, 1e7))
def test_what_is_known_is_left_as_it_is(remaining_s: float, executed_s: float) -> None:
    rows = [
        running(1, (0, 1), remaining_s=remaining_s, executed_s=executed_s),
        waiting(2, remaining_s=remaining_s),
        waiting(3, remaining_s=0.0),
    ]
    jobs = cluster(rows, mixed_nodes(1)).jobs
    assert not find_unknown(jobs).any()
    assert expect_remaining_s(jobs).tolist() == [remaining_s, remaining_s, 0.0]


def test_who_outlived_what_was_said_is_of_unknown_run_time() -> None:
    rows = [running(1, (0, 1), remaining_s=0.0, since_s=700.0), waiting(2, remaining_s=0.0, executed_s=700.0)]
    assert expect_remaining_s(cluster(rows, mixed_nodes(1)).jobs).tolist() == [500.0, 500.0]


@pytest.mark.parametrize("policy", ["srsf", "srtf"])
@pytest.mark.parametrize("told_s", [math.nan, 30.0])
def test_a_long_job_leaves_for_those_that_wait_although_nothing_else_happens(policy: str, told_s: float) -> None:
    jobs = one_gpu_jobs([(0.0, 100_000.0), (1.0, 100.0)]).with_columns(expected_s=np.array([told_s, math.nan]))
    outcome = Scenario(jobs, parse_cluster("1x1")).run(make_policy(policy, {"min_run_s": 0}))
    assert outcome.end_s[1] <= 2 * FIRST_GUESS_S + 100.0
    predicted = simulate(one_gpu_jobs([(0.0, 1e7), (1.0, 100.0)]), "1x1", policy, "predicted")
    assert predicted.end_s[1] < 100_000.0


@settings(max_examples=examples(60), deadline=None)
@given(JOBS, st.sampled_from(["srsf", "srtf"]))
def test_a_job_is_preempted_for_a_newcomer_or_when_what_it_was_taken_to_run_for_is_over(
    gaps_and_runs: list[tuple[float, float]], policy: str
) -> None:
    """So all of them together not more often than there are jobs, and doublings of :data:`FIRST_GUESS_S`."""
    outcome = simulate(one_gpu_jobs(gaps_and_runs), "1x2", policy, "none")
    doublings = sum(max(0, math.floor(math.log2(run_s / FIRST_GUESS_S)) + 1) for _, run_s in gaps_and_runs)
    assert int(outcome.preemptions.sum()) <= len(gaps_and_runs) + doublings
    most = 1 + max(run_s for _, run_s in gaps_and_runs) / FIRST_GUESS_S
    assert outcome.preemptions.max() <= len(gaps_and_runs) + math.log2(most)


class Watched:
    """A policy that counts how often it was told something new of a job: that runs longer than was said, or that never ran
    while its like ended."""

    name = "watched"

    def __init__(self) -> None:
        self._policy, self._total_s, self.new = make_policy("srsf", {"min_run_s": 0}), dict[int, float](), 0

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        jobs = snapshot.jobs
        for row in range(len(jobs)):
            total_s = float(jobs.executed_s[row] + jobs.remaining_s[row])
            before_s = self._total_s.setdefault(int(jobs.job_id[row]), total_s)
            if not math.isclose(total_s, before_s, abs_tol=1e-3):
                self.new += 1
                self._total_s[int(jobs.job_id[row])] = total_s
                assert jobs.state[row] == JobState.RUNNING or not jobs.executed_s[row]
        return self._policy.decide(snapshot)


@settings(max_examples=examples(40), deadline=None)
@given(JOBS)
@example([(0.0, 2.0), (0.0, 6.0), (0.0, 4.0), (0.0, 4.0), (0.0, 4.0), (9.0, 4.0), (0.0, 4.0)])
def test_a_predicted_job_is_preempted_for_a_newcomer_or_when_its_prediction_is_outlived(
    gaps_and_runs: list[tuple[float, float]],
) -> None:
    jobs, watched = with_estimates(one_gpu_jobs(gaps_and_runs), "exact"), Watched()
    outcome = Scenario(jobs, parse_cluster("1x2")).run(with_predicted_run_times(watched, jobs, None))
    assert int(outcome.preemptions.sum()) <= len(gaps_and_runs) + watched.new


@pytest.mark.parametrize("estimates", ["none", "limit", "predicted"])
@pytest.mark.parametrize(
    ("name", "jobs", "load", "nodes"), [("small", 150, 2.0, "16x4"), ("philly-month", 120, 3.0, "4x4")]
)
def test_without_knowledge_srsf_costs_little_more_than_least_attained_service(
    name: str, jobs: int, load: float, nodes: str, estimates: str
) -> None:
    of = [generate_workload(name, seed, jobs, {"load_ratio": load}) for seed in (1, 2)]
    known = [simulate(one, nodes, "tiresias-las", "exact") for one in of]
    told = [simulate(one, nodes, "srsf", estimates) for one in of]
    assert sum(map(avg_jct_s, told)) <= 1.1 * sum(map(avg_jct_s, known))
    assert np.concatenate([one.preemptions for one in told]).mean() <= 3.0


@pytest.mark.parametrize("policy", ["srsf", "srtf"])
def test_with_exact_run_times_every_engine_decides_as_before(policy: str) -> None:
    """The order by the truth, whose engine by events knows no others."""
    jobs, nodes = with_estimates(generate_workload("small", 3, 120), "exact"), parse_cluster("4x4")
    ends = [Scenario(jobs, nodes, engine=engine).run(make_policy(policy, {})).end_s for engine in ("auto", "snapshot")]
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_without_any_past_the_jobs_that_end_first_do_not_make_soda_slower_than_least_attained_service(
    seed: int,
) -> None:
    """80 jobs of 60 or 240 s at a load of 1.25: where only ended jobs taught, 1.6, 2.1 and 1.4 times as long."""
    rng = np.random.default_rng(seed)
    run_s = rng.choice([60.0, 240.0], 80)
    jobs = one_gpu_jobs(list(zip(rng.exponential(run_s.mean() / 1.25 / 4, 80), run_s, strict=True)))
    soda, attained = (avg_jct_s(simulate(jobs, "1x4", policy, "predicted")) for policy in ("soda", "tiresias-las"))
    assert soda < 1.05 * attained


@pytest.mark.parametrize("run_s", [300.0, 3600.0])
def test_jobs_that_are_all_alike_do_not_take_turns_until_the_first_has_ended(run_s: float) -> None:
    """80 jobs on 4 GPUs at a load of 1.25. By attained service alone each one's rank would fall as it runs."""
    gaps_s = np.random.default_rng(3).exponential(run_s / 1.25 / 4, 80).tolist()
    jobs = one_gpu_jobs([(gap_s, run_s) for gap_s in gaps_s])
    soda, attained = (avg_jct_s(simulate(jobs, "1x4", policy, "predicted")) for policy in ("soda", "tiresias-las"))
    assert soda < 1.1 * attained


@pytest.mark.parametrize("saves_every_s", [0.0, 10_000.0])
def test_who_loses_its_work_is_not_taken_for_one_that_has_just_begun(saves_every_s: float) -> None:
    """``soda`` stops a job each time that its rank has grown by ``resolution``; else it would do so every few minutes."""
    run_s = 5000.0
    rows = [{"submit_s": 0.0, "run_s": run_s, "gpus": 1, "user": user} for user in "ab"]
    rows += [{"submit_s": 1.0, "run_s": run_s, "gpus": 2, "user": "c"}] * 3
    rows = [{**row, "saves_every_s": saves_every_s} for row in rows]
    outcome = simulate(Workload.build("w", rows), "1x2", "soda", "predicted")
    assert np.isfinite(outcome.end_s).all()
    assert outcome.preemptions.max() <= math.log(run_s / 60.0, 1.75) + 1

"""Predicted run times in whole simulations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.predicted_run_times import (
    PolicyWithPredictions,
    StartsOnlyPolicyWithPredictions,
    traits_of_workload,
    with_predicted_run_times,
)
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl.main import run

USERS = (("alice", 60.0), ("bob", 3600.0), ("carol", 50_000.0))


def workload(seed: int, jobs: int = 150) -> Workload:
    """Users whose jobs are short, medium and long, each within a third."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for at in range(jobs):
        user, usual_s = USERS[int(rng.integers(len(USERS)))]
        run_s = usual_s * float(rng.uniform(0.75, 1.33))
        rows.append({"submit_s": at * 300.0, "run_s": run_s, "user": user, "gpus": int(rng.choice([1, 1, 2]))})
    return Workload.build(f"seed {seed}", rows)


def predicted(of: Workload, past: Workload | None, engine: str = "auto") -> Scenario:
    return Scenario(with_estimates(of, "predicted"), parse_cluster("2x2"), engine=engine, past=past, predicted=True)


def avg_jct_s(scenario: Scenario, policy: str) -> float:
    outcome = scenario.run(make_policy(policy, {}))
    return float((outcome.end_s - outcome.workload.submit_s).mean())


def test_traits_of_a_trace_have_its_time_limits() -> None:
    rows = [
        {"submit_s": 0.0, "run_s": 10.0, "gpus": 1, "time_limit_s": 600.0},
        {"submit_s": 1.0, "run_s": 10.0, "gpus": 1},
    ]
    assert [traits.limit_s for traits in traits_of_workload(Workload.build("made", rows))] == [600.0, math.inf]


@pytest.mark.parametrize("policy", ["sjf", pytest.param("srsf", marks=pytest.mark.thorough)])
def test_users_who_repeat_themselves_are_nearly_as_good_as_known(policy: str) -> None:
    jobs = workload(1)
    exact = avg_jct_s(Scenario(with_estimates(jobs, "exact"), parse_cluster("2x2")), policy)
    told = avg_jct_s(predicted(jobs, workload(2)), policy)
    cold = avg_jct_s(predicted(jobs, None), policy)
    nothing = avg_jct_s(Scenario(with_estimates(jobs, "none"), parse_cluster("2x2")), policy)
    assert exact * 0.999 <= told <= 1.1 * exact
    assert told < nothing
    assert cold < nothing, "without a history it learns from the jobs that end"


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("sjf", StartsOnlyPolicyWithPredictions),
        ("fifo-skip", StartsOnlyPolicyWithPredictions),
        ("srsf", PolicyWithPredictions),
    ],
)
def test_whoever_only_starts_jobs_is_asked_only_when_one_fits(policy: str, kind: type) -> None:
    assert type(with_predicted_run_times(make_policy(policy, {}), with_estimates(workload(1), "exact"), None)) is kind


@pytest.mark.parametrize("policy", ["sjf", "srtf"])
def test_every_engine_says_the_same(policy: str) -> None:
    jobs, past = workload(3, 80), workload(4)
    ends = [predicted(jobs, past, engine).run(make_policy(policy, {})).end_s for engine in ("auto", "snapshot")]
    np.testing.assert_array_equal(*ends)


class Watched:
    """A policy that keeps what it was told."""

    name = "watched"

    def __init__(self) -> None:
        self.told: list[tuple[float, int, float]] = []
        self._policy = make_policy("fifo-skip", {})

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        jobs = snapshot.jobs
        self.told += [
            (snapshot.now_s, *pair) for pair in zip(jobs.job_id.tolist(), jobs.remaining_s.tolist(), strict=True)
        ]
        return self._policy.decide(snapshot)


def test_nobody_is_told_of_what_has_not_happened() -> None:
    """Two futures that are alike until an instant: until then all that is told is alike."""
    jobs = workload(5, 60)
    late = jobs.run_s.copy()
    late[late > 40_000.0] *= 2.0  # jobs that run at least 40 000 s, that is beyond the instant below
    told = []
    for run_s in (jobs.run_s, late):
        watched = Watched()
        changed = jobs.with_columns(run_s=run_s)
        Scenario(with_estimates(changed, "predicted"), parse_cluster("2x2"), predicted=True, past=workload(6)).run(
            watched
        )
        told.append([one for one in watched.told if one[0] < 35_000.0])
    np.testing.assert_allclose(*(np.array(one) for one in told), rtol=1e-9)
    assert len(told[0]) > 100


def watch(jobs: Workload, tells_after_s: float) -> tuple[Watched, SimulationOutcome]:
    watched = Watched()
    scenario = Scenario(
        with_estimates(jobs, "predicted"), parse_cluster("1x2"), predicted=True, tells_after_s=tells_after_s
    )
    return watched, scenario.run(watched)


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_policy_is_asked_again_when_a_job_tells_its_progress_while_others_wait(gpus: int) -> None:
    """At 210 s the long one does, which is no event."""
    rows = [{"submit_s": 0.0, "run_s": 10.0}, {"submit_s": 0.0, "run_s": 5000.0}, {"submit_s": 5.0, "run_s": 20.0}]
    jobs = Workload.build("waits", [row | {"gpus": gpus if row["submit_s"] else 1, "user": "alice"} for row in rows])
    asked_s = {one[0] for one in watch(jobs, 210.0)[0].told}
    assert (210.0 in asked_s) == (gpus > 1), "only while one waits"


def test_who_decides_what_runs_next_knows_how_long_the_job_before_ran() -> None:
    """The policy does not go by what it is told, so all that differs is what ended jobs taught by then."""
    rows = [{"submit_s": 0.0, "run_s": 2000.0, "user": "alice"}, {"submit_s": 100.0, "run_s": 9.0, "user": "alice"}]
    told = [
        one[2]
        for one in watch(Workload.build("two", [{**row, "gpus": 2} for row in rows]), math.inf)[0].told
        if one[1] == 2
    ]
    first_s, *_, last_s = told
    assert abs(last_s - 2000.0) < abs(first_s - 2000.0)


def test_who_tells_its_progress_is_known_once_it_has_worked_for_long_enough() -> None:
    watched, outcome = watch(workload(9, 40), 500.0)
    long_ago = [one for one in watched.told if one[0] >= outcome.first_start_s[one[1] - 1] + 500.0]
    assert len(long_ago) > 20
    for now_s, job_id, left_s in long_ago:
        assert left_s == pytest.approx(float(outcome.end_s[job_id - 1]) - now_s)


def test_a_time_limit_bounds_what_is_told() -> None:
    jobs = workload(7, 40).with_columns(time_limit_s=np.full(40, 500.0), run_s=np.full(40, 400.0))
    watched = Watched()
    Scenario(with_estimates(jobs, "predicted"), parse_cluster("2x2"), predicted=True, past=workload(8)).run(watched)
    assert min(left for _, _, left in watched.told) >= 1.0
    assert max(left for _, _, left in watched.told) <= 500.0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    rows = [
        f"2017-10-{day:02d} 0{hour}:00:00,{600 * hour + 60},{hour % 2 + 1},vc{hour}"
        for day in range(1, 6)
        for hour in range(8)
    ]
    path.write_text("\n".join(["timestamp,duration,num_gpus,cluster", *rows, ""]))
    return path


def test_the_first_days_of_a_trace_are_its_past(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["simulate", "--trace", str(trace), "--cluster", "1x2", "--policy", "srsf", "--estimates", "predicted"]
    assert run([*options, "--learn-days", "3", "--json"]) == 0
    out = capsys.readouterr().out
    assert '"jobs": 16' in out
    assert '"learn_days": 3.0' in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--learn-days", "3"], "--learn-days needs a --trace"),
        (["--trace", "TRACE", "--cluster", "1x2", "--learn-days", "3", "--history", "TRACE"], "no --history"),
        (["--trace", "TRACE", "--cluster", "1x2", "--learn-days", "30"], "no job is submitted after 30 days"),
    ],
)
def test_days_that_cannot_be_learned_from(
    options: list[str], said: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *(str(trace) if word == "TRACE" else word for word in options)]) != 0
    assert said in capsys.readouterr().err

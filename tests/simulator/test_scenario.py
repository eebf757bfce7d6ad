"""Scenarios: what policies know, and what they run on."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.policies.baselines.gandiva import Gandiva
from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.tiresias.policy import Tiresias
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.run_results import FailedRun, SimulatedRun
from slurm_soda.simulator.runs.batch import SimulationBatch, run_batch
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.policy_choice import PolicyChoice, service_gpu_s
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.runs.start_forecasts import forecast_starts_of
from slurm_soda.simulator.workload import Workload

WORKLOAD = Workload.build(
    "by hand",
    [
        {"submit_s": 0, "run_s": 10, "gpus": 2, "time_limit_s": 60, "expected_s": 20},
        {"submit_s": 1, "run_s": 5, "gpus": 0},
        {"submit_s": 2, "run_s": 4, "gpus": 1, "expected_s": 3},
    ],
)
SCENARIO = Scenario(WORKLOAD, parse_cluster("1x2"))


def ran(found: Sequence[SimulatedRun | FailedRun]) -> list[SimulatedRun]:
    """All runs, none of which failed."""
    assert not [one for one in found if isinstance(one, FailedRun)]
    return [one for one in found if isinstance(one, SimulatedRun)]


@pytest.mark.parametrize(
    ("estimates", "expected_s"),
    [("trace", [20, 5, 3]), ("exact", [10, 5, 4]), ("limit", [60, np.nan, np.nan]), ("none", [np.nan] * 3)],
)
def test_estimates(estimates: str, expected_s: list[float]) -> None:
    np.testing.assert_array_equal(with_estimates(WORKLOAD, estimates).expected_s, expected_s)
    assert WORKLOAD.expected_s.tolist() == [20, 5, 3]


def test_unknown_estimates() -> None:
    with pytest.raises(
        SimulatorError, match="no estimates 'oracle'; choose one of: trace, exact, limit, predicted, none"
    ):
        with_estimates(WORKLOAD, "oracle")


def test_policies_that_learn_are_told_of_the_service_of_all_gpu_jobs() -> None:
    assert service_gpu_s(WORKLOAD).tolist() == [20, 4]
    policy = SCENARIO.policy("tiresias-gittins", {"min_run_s": 0})
    assert isinstance(policy, Tiresias)
    assert policy.samples_gpu_s.tolist() == [4, 20]


def test_a_history_or_samples_that_were_set_go_before() -> None:
    past = Scenario(WORKLOAD, parse_cluster("1x2"), history_gpu_s=np.array([7.0]))
    learnt, told = past.policy("tiresias-gittins", {}), past.policy("tiresias-gittins", {"samples_gpu_s": [9.0]})
    assert isinstance(learnt, Tiresias)
    assert isinstance(told, Tiresias)
    assert (learnt.samples_gpu_s.tolist(), told.samples_gpu_s.tolist()) == ([7], [9])


@pytest.mark.parametrize(
    ("costs", "restart_s", "quantum_s"),
    [
        (Costs(), 0, 60),
        (Costs(restart_s=5), 0, 60),
        (Costs(restart_s=62), 0, 620),
        (Costs(restart_s=62, checkpoint_s=8), 20, 900),
        (Costs(start_s=100, restart_s=62), 0, 1000),
    ],
)
def test_slices_are_long_against_what_a_change_of_jobs_costs(costs: Costs, restart_s: float, quantum_s: float) -> None:
    scenario = replace(SCENARIO, workload=WORKLOAD.with_columns(restart_s=np.full(3, restart_s)), costs=costs)
    policy, told = scenario.policy("gandiva", {}), scenario.policy("gandiva", {"quantum_s": 7.0})
    assert isinstance(policy, Gandiva)
    assert isinstance(told, Gandiva)
    assert (policy.quantum_s, told.quantum_s) == (quantum_s, 7.0)


SLOW = replace(SCENARIO, costs=Costs(restart_s=2, start_s=2))
HASTY = PolicyChoice("gandiva", {"quantum_s": 1.0})
"""Fails where a start takes longer than its slice."""


@pytest.mark.usefixtures("soon_in_vain")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_run_that_fails_leaves_the_others_and_says_of_which_policy_and_seed(workers: int) -> None:
    scenarios = (replace(SLOW, seed=4), replace(SCENARIO, seed=5))
    first, second, third, fourth = run_batch(SimulationBatch(scenarios, (HASTY, PolicyChoice("fifo"))), workers=workers)
    assert isinstance(first, FailedRun)
    assert (first.policy, first.seed) == ("gandiva", 4)
    assert str(first).startswith("gandiva, seed 4: at ")
    assert "before they made any progress" in first.reason
    assert [(run.policy, run.seed) for run in ran([second, third, fourth])] == [
        ("gandiva", 5), ("fifo", 4), ("fifo", 5)
    ]  # fmt: skip


def test_a_fault_of_a_policy_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Scenario, *_: object) -> SimulationOutcome:
        raise ZeroDivisionError("by\nhand")

    monkeypatch.setattr(Scenario, "run", broken)
    (found,) = run_batch(SimulationBatch((SCENARIO,), (PolicyChoice("fifo"),)), workers=1)
    assert isinstance(found, FailedRun)
    assert str(found) == "fifo: a fault of slurm-soda, ZeroDivisionError: by hand; sodactl simulate shows where"


def test_what_a_policy_refuses_in_the_middle_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Scenario, *_: object) -> SimulationOutcome:
        raise PolicyError("a table must be square")

    monkeypatch.setattr(Scenario, "_run", refuse)
    with pytest.raises(SimulatorError, match=r"^policy fifo: a table must be square$"):
        SCENARIO.run(SCENARIO.policy("fifo", {}))


def test_what_a_policy_lacks_is_said_before_anything_runs() -> None:
    seen: list[int] = []
    with pytest.raises(SimulatorError, match="policy sjf-bsbf: nobody says what jobs do to each other"):
        run_batch(
            SimulationBatch((SCENARIO,), (PolicyChoice("fifo"), PolicyChoice("sjf-bsbf"))),
            workers=1,
            progress=lambda done, _: seen.append(done),
        )
    assert seen == []


def test_a_scenario_travels_between_processes() -> None:
    sent = pickle.loads(pickle.dumps(Scenario(WORKLOAD, parse_cluster("2x2:a100"), Costs(restart_s=5), seed=3)))
    assert sent.costs == Costs(restart_s=5)
    assert sent.run(sent.policy("fifo", {})).end_s.tolist() == [10, 6, 6]


def test_a_batch_runs_all_seeds_of_a_policy_after_each_other() -> None:
    late = Scenario(WORKLOAD.with_columns(submit_s=WORKLOAD.submit_s + 9), parse_cluster("1x2"), seed=2)
    batch = SimulationBatch((SCENARIO, late), (PolicyChoice("fifo"), PolicyChoice("srsf")))
    seen: list[tuple[int, int]] = []
    found = ran(run_batch(batch, workers=1, progress=lambda done, total: seen.append((done, total))))
    assert [(run.policy, run.seed) for run in found] == [("fifo", None), ("fifo", 2), ("srsf", None), ("srsf", 2)]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [run.lanes for run in found] == [None] * 4
    charts = ran(run_batch(SimulationBatch((SCENARIO, late), (PolicyChoice("fifo"),), charts=True), workers=1))
    assert [run.lanes is not None for run in charts] == [True, False]


def test_a_wrong_parameter_is_said_before_anything_runs() -> None:
    with pytest.raises(PolicyError, match="no parameter 'min_run_s'"):
        run_batch(
            SimulationBatch((SCENARIO,), (PolicyChoice("srsf"), PolicyChoice("fifo", {"min_run_s": 1}))), workers=2
        )


def test_jobs_are_preempted_at_once_while_that_is_free() -> None:
    dear = replace(SCENARIO, costs=Costs(restart_s=30))
    own = replace(SCENARIO, workload=WORKLOAD.with_columns(restart_s=WORKLOAD.restart_s + 5))
    assert SCENARIO.policy("srtf", {}) == SortKeyPolicy("srtf", min_run_s=0.0)
    assert dear.policy("srtf", {}) == own.policy("srtf", {}) == SortKeyPolicy("srtf", min_run_s=60.0)
    assert SCENARIO.policy("srtf", {"min_run_s": 7}) == SortKeyPolicy("srtf", min_run_s=7.0)


@pytest.mark.parametrize(
    "wrap", [lambda policy: policy, lambda policy: forecast_starts_of(policy, 1)], ids=["", "forecast"]
)
def test_soda_runs_where_nobody_knows_what_jobs_do_to_each_other(wrap: Callable[[Policy], Policy]) -> None:
    outcome = SCENARIO.run(wrap(SCENARIO.policy("soda", {})))
    assert np.isfinite(outcome.end_s).all()
    assert outcome.sharing is None
    with pytest.raises(SimulatorError, match="nobody says what jobs do to each other"):
        SCENARIO.run(SCENARIO.policy("srsf-share", {}))

"""Preemptions that cost each kind of jobs something else, and soda that learns what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine import job_progress
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.preemption_log import PreemptionLog
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators.registry import find_generator, generate_workload
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs import scenario as scenario_module
from slurm_soda.simulator.runs.estimates import PREDICTED, with_estimates
from slurm_soda.simulator.runs.learned_preemption_costs import PolicyWithLearnedCosts, costs_differ
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.runs.uneven_costs import UnevenCosts, describe_uneven_costs
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import history

ONE_GPU = parse_cluster("1x1")
LONG_THEN_SHORT = [{"submit_s": 0.0, "run_s": 1000.0}, {"submit_s": 250.0, "run_s": 10.0}]


def generated(family: str, seed: int, jobs: int = 60, *, estimates: str = "exact", **more: Any) -> Scenario:
    workload = generate_workload(family, seed, jobs, {"load_ratio": 1.5})
    cluster = parse_cluster(find_generator(family).cluster, workload.partitions)
    told = with_estimates(workload, estimates)
    return Scenario(told, cluster, seed=seed, predicted=estimates == PREDICTED, **more)


def run(scenario: Scenario, change_s: float | None = None) -> SimulationOutcome:
    return scenario.run(scenario.policy("soda", {} if change_s is None else {"change_s": change_s}))


@pytest.mark.parametrize("engine", ["gpu-count", "nodes", "snapshot"])
@pytest.mark.parametrize(("every_s", "end_s"), [(0.0, 1020.0), (100.0, 1070.0), (251.0, 1270.0)])
def test_who_does_not_save_when_asked_loses_what_it_did_since(engine: str, every_s: float, end_s: float) -> None:
    workload = Workload.build("w", [{**LONG_THEN_SHORT[0], "saves_every_s": every_s}, LONG_THEN_SHORT[1]])
    outcome = simulate(
        workload, ONE_GPU, make_policy("srsf", {"min_run_s": 0}), costs=Costs(restart_s=10), engine=engine
    )
    assert outcome.preemptions.tolist() == [1, 0]
    assert outcome.end_s.tolist() == [end_s, 260.0]


def test_jobs_that_never_get_to_save_their_state_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that take turns of a minute, and would save after two."""
    monkeypatch.setattr(job_progress, "_MOST_FRUITLESS_PREEMPTIONS", 20)
    rows = [{"submit_s": 0.0, "run_s": 600.0, "saves_every_s": 120.0}] * 2
    with pytest.raises(SimulatorError, match="before they made any progress"):
        simulate(Workload.build("w", rows), ONE_GPU, make_policy("gandiva", {"quantum_s": 60}))


class Watched:
    """soda, and the costs that it was told of."""

    name, cpu_jobs_last = "soda", True

    def __init__(self) -> None:
        self.told: list[tuple[float, list[float]]] = []

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        costs = snapshot.preemption_costs
        assert len(costs) in (0, len(snapshot.jobs))
        self.told.append((snapshot.now_s, [] if not len(costs) else costs.learned_s[costs.weight > 0].tolist()))
        return make_policy("soda", {"change_s": 1.0}).decide(snapshot)


def test_a_preemption_is_known_once_the_job_makes_progress_again() -> None:
    """It is preempted at 250 s, 50 s after it saved its state, starts again at 260 s, and works on from 300 s."""
    rows = [{**LONG_THEN_SHORT[0], "saves_every_s": 100.0}, LONG_THEN_SHORT[1]]
    rows += [{"submit_s": at, "run_s": 1e5} for at in (290.0, 350.0)]
    workload, log, watched = Workload.build("w", rows), PreemptionLog(), Watched()
    policy = PolicyWithLearnedCosts(watched, workload, log)
    simulate(workload, ONE_GPU, policy, costs=Costs(restart_s=40), preemptions=log, passing_limit_s=1e9)
    told = {at: costs for at, costs in watched.told if at in (290.0, 350.0)}
    assert told[290.0] == []
    assert told[350.0][0] == 40.0 + 50.0, "of which it worked 50 s since, as much as a loss that was seen"


@pytest.mark.sample(3)
@pytest.mark.parametrize("estimates", ["exact", PREDICTED, "none"])
@pytest.mark.parametrize(("family", "seed"), [("like-pollux", 1), ("like-gavel", 2), ("lab", 3)])
def test_where_all_preemptions_cost_the_same_nothing_changes_to_the_bit(
    family: str, seed: int, estimates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = generated(family, seed, estimates=estimates, costs=Costs(restart_s=62.0, checkpoint_s=0.7))
    plain = run(scenario)
    monkeypatch.setattr(scenario_module, "costs_differ", lambda _workload: True)
    learned = run(scenario)
    assert history(plain) == history(learned)
    assert plain.preemptions.sum() > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [1, 2])
def test_nor_where_jobs_share(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = SharingRules(slowdown=1.3)
    scenario = generated("like-gavel", seed, 30, estimates=PREDICTED, costs=Costs(restart_s=62.0), sharing=sharing)
    plain = run(scenario)
    monkeypatch.setattr(scenario_module, "costs_differ", lambda _workload: True)
    assert history(plain) == history(run(scenario))
    assert plain.preemptions.sum() > 0


def test_it_learns_only_where_there_is_something_to_learn() -> None:
    workload = generate_workload("like-pollux", 1, 60)
    assert not costs_differ(workload)
    assert not costs_differ(workload.with_columns(restart_s=np.full(60, 30.0)))
    assert costs_differ(UnevenCosts(2.0, 30.0).drawn(workload, 1))
    assert costs_differ(workload.with_columns(saves_every_s=np.full(60, 600.0)))
    nobody = workload.with_columns(saves_every_s=np.full(60, 600.0), preemptible=np.zeros(60, dtype=np.bool_))
    assert not costs_differ(nobody)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [3, 6])
def test_where_kinds_differ_jobs_end_earlier_than_with_one_number(seed: int) -> None:
    """As in docs/policies/soda.md."""
    scenario = generated("like-pollux", seed, 400, max_preemptions=10, passing_limit_s=86_400.0)
    workload = UnevenCosts(10.0, 300.0, 3600.0).drawn(scenario.workload, seed)
    uneven = replace(scenario, workload=workload)
    learned, uniform = (run(replace(uneven, learns_costs=learns), 300.0) for learns in (True, False))
    assert (learned.end_s - workload.submit_s).mean() < 0.97 * (uniform.end_s - workload.submit_s).mean()


def test_the_same_run_is_the_same() -> None:
    scenario = generated("like-pollux", 3)
    scenario = replace(scenario, workload=UnevenCosts(10.0, 60.0, 1800.0).drawn(scenario.workload, 3))
    assert history(run(scenario, 60.0)) == history(run(scenario, 60.0))


def test_kinds_differ_and_jobs_of_a_kind_do_not() -> None:
    workload = generate_workload("like-pollux", 1, 200)
    drawn = UnevenCosts(10.0, 60.0, 1800.0).drawn(workload, 1)
    for name, least, most in (("restart_s", 6.0, 600.0), ("saves_every_s", 180.0, 18_000.0)):
        column = getattr(drawn, name)
        by_model = [set(column[workload.model == code].tolist()) for code in range(len(workload.models))]
        assert all(len(values) == 1 for values in by_model)
        values = set.union(*by_model) - {0.0}
        assert len(values) > 1
        assert all(least <= value <= most for value in values)
    assert {0.0} < set(drawn.saves_every_s.tolist())
    assert "by the kind of job (--cost-spread); " in describe_uneven_costs(drawn)[0]
    again = UnevenCosts(10.0, 60.0).drawn(workload, 1)
    assert again.restart_s.tolist() == drawn.restart_s.tolist()
    assert not again.saves_every_s.any()
    other = UnevenCosts(10.0, 60.0).drawn(workload, 2)
    assert other.restart_s.tolist() != drawn.restart_s.tolist()


def test_of_workloads_without_models_users_differ() -> None:
    rows = [{"submit_s": 0.0, "run_s": 1.0, "user": user} for user in "aab"]
    first, same, other = UnevenCosts(10.0, 60.0).drawn(Workload.build("w", rows), 1).restart_s.tolist()
    assert first == same != other


@pytest.mark.parametrize("spread", [0.5, 2000.0, float("nan")])
def test_a_spread_that_is_none_is_refused(spread: float) -> None:
    with pytest.raises(SimulatorError, match=r"cost_spread = .* is not allowed; use a ratio from 1 to 1000"):
        UnevenCosts(spread, 60.0)

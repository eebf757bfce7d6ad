"""Agents in the event loop: cores make speed, requests are rewritten, searches end at the best fit, and engines agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import NodeFailure, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.bandwidth_contention import (
    HEAVY_BANDWIDTH_MODEL,
    MEMORY_CONTENTION_RATIO,
    NETWORK_CONTENTION_RATIO,
)
from slurm_soda.simulator.node.core_tuning import SEARCH_STEP_S
from slurm_soda.simulator.node.model_core_curves import BEST_FIT_BY_MODEL, INFERENCE_RATIO, make_built_in_curves
from slurm_soda.simulator.node.node_agents import NodeAgents
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples
from tests.simulator.engine.worlds import history, job

CURVES = make_built_in_curves()
ADAPTIVE = NodeRules("adaptive")


def run(
    rows: list[dict[str, Any]], cluster: str = "1x4/28c", rules: NodeRules = ADAPTIVE, policy: str = "fifo", **more: Any
) -> SimulationOutcome:
    work, nodes = Workload.build("by hand", rows), more.pop("nodes", None) or parse_cluster(cluster)
    agents = NodeAgents(work, nodes, CURVES, rules)
    return simulate(work, nodes, make_policy(policy), agents=agents, **more)


def training(submit_s: float = 0.0, run_s: float = 7200.0, cpus: int = 1, **columns: Any) -> dict[str, Any]:
    return job(submit_s, run_s, cpus=cpus, **{"model": "bat", "category": "nlp", "gpus_per_node": 1, **columns})


def test_with_the_cores_asked_for_nothing_changes_but_utilisation_is_known() -> None:
    rows = [training(cpus=2), training(cpus=9, model="alexnet", category="cv"), job(0, 50, 0, cpus=3)]
    found = run(rows, rules=NodeRules("asked"))
    assert found.end_s.tolist() == [7200, 7200, 50]
    assert found.node_measurements is not None
    stretches = found.node_measurements.stretches
    busy = dict(zip(stretches.job.tolist(), stretches.busy_ratio.tolist(), strict=True))
    assert busy == {0: CURVES["bat"].at(2), 1: CURVES["alexnet"].at(9), 2: 0.0}


@pytest.mark.parametrize("model", sorted(set(BEST_FIT_BY_MODEL) - {"other"}))
@pytest.mark.parametrize("asked", [1, 2, 20])
def test_a_job_ends_with_just_enough_cores_and_as_early_as_they_allow(model: str, asked: int) -> None:
    found = run([training(cpus=asked, model=model, category="")])
    assert found.node_measurements is not None
    best_fit = BEST_FIT_BY_MODEL[model][0]
    assert abs(found.node_measurements.cpus[0] - best_fit) <= 1
    assert 1 <= found.node_measurements.steps[0] <= 4
    shortest_s = 7200 * CURVES[model].at(asked) / CURVES[model].at(best_fit)
    assert shortest_s <= found.end_s[0] <= 1.02 * shortest_s + 5 * SEARCH_STEP_S


def test_the_next_job_of_the_user_asks_for_what_was_found() -> None:
    found = run([training(), training(10_000), training(10_000, user="another")])
    assert found.node_measurements is not None
    stretches = found.node_measurements.stretches
    first = {row: stretches.cpus[np.flatnonzero(stretches.job == row)[0]] for row in (1, 2)}
    assert first[1] == found.node_measurements.cpus[0]
    assert first[2] == 5  # an owner without history: NLP


def test_cores_that_others_hold_are_not_taken_and_freed_ones_are_of_use() -> None:
    rows = [job(0, 50_000, 0, cpus=22, nodes=1), training(1, model="wavenet"), job(2, 60, 0, cpus=8)]
    found = run(rows, "1x1/28c", policy="fifo-skip")
    assert found.node_measurements is not None
    assert found.node_measurements.cpus[1] <= 6
    assert found.first_start_s[2] > found.end_s[1]
    held = run([training(cpus=28, model="vgg16", category="odd"), job(2, 60, 0, cpus=20)], "1x1/28c")
    assert held.first_start_s[1] < held.end_s[0]


def test_inference_and_cpu_jobs_keep_their_cores() -> None:
    found = run([training(cpus=2, category="inference"), job(0, 100, 0, cpus=7)])
    assert found.node_measurements is not None
    assert found.node_measurements.cpus.tolist() == [2, 7]
    assert found.end_s.tolist() == [7200, 100]
    busy = found.node_measurements.stretches.busy_ratio[found.node_measurements.stretches.job == 0]
    assert busy.tolist() == [INFERENCE_RATIO]


@pytest.mark.parametrize(("eliminates", "ratio"), [
    ("nothing", MEMORY_CONTENTION_RATIO * NETWORK_CONTENTION_RATIO), ("memory", NETWORK_CONTENTION_RATIO), ("all", 1.0),
])  # fmt: skip
def test_a_heavy_neighbour_slows_training_while_it_is_there(eliminates: str, ratio: float) -> None:
    wide = training(cpus=10, gpus=2, nodes=2, model="alexnet", category="cv", run_s=1000.0)
    rows = [wide, job(100, 200, 0, cpus=1, model=HEAVY_BANDWIDTH_MODEL)]
    found = run(rows, "2x1/28c", NodeRules("asked", eliminates))
    spell_s = found.end_s[1] - 100
    assert found.end_s[0] == pytest.approx(1000 + spell_s * (1 - ratio))
    assert (spell_s > 200) == (eliminates != "nothing")  # the shield costs the CPU job


def test_a_node_that_fails_takes_what_was_done_since_the_start() -> None:
    cluster = parse_cluster("1x1/28c")
    object.__setattr__(cluster, "failures", (NodeFailure(0, 1000.0, 1500.0),))
    found = run([training(cpus=5, run_s=2000.0)], nodes=cluster, rules=NodeRules("asked"))
    assert found.end_s.tolist() == [3500]
    adapted = run([training(cpus=5, run_s=2000.0)], nodes=cluster)
    assert 3500 <= adapted.end_s[0] <= 3500 + 10 * SEARCH_STEP_S


def test_cores_that_nobody_counts_cannot_be_adapted() -> None:
    with pytest.raises(SimulatorError, match="write --cluster with cores, as in 80x5/28c"):
        run([training()], "1x4")


def test_jobs_that_take_time_to_leave_keep_their_progress() -> None:
    rows = [training(cpus=2, run_s=4000.0, expected_s=4000.0), training(900, 300, cpus=2, gpus=1, expected_s=300.0)]
    found = run(rows, "1x1/28c", policy="srtf", costs=Costs(checkpoint_s=40.0))
    assert found.preemptions.tolist() == [1, 0]
    assert found.node_measurements is not None
    stretches, ratio = found.node_measurements.stretches, CURVES["bat"].at(2)
    work_s = ((stretches.end_s - stretches.start_s) * stretches.busy_ratio)[stretches.job == 0].sum() / ratio
    saving_s = 40.0 * stretches.busy_ratio[stretches.job == 0].max() / ratio
    assert 4000 <= work_s <= 4000 + saving_s + 1e-6


def test_a_job_that_took_time_to_leave_is_slowed_by_neighbours_in_its_next_run() -> None:
    wide = training(cpus=10, gpus=2, nodes=2, model="alexnet", category="cv", run_s=1000.0, expected_s=1000.0)
    rows = [wide, training(100, 50, gpus=1, expected_s=50.0)]
    heavy = job(400, 200, 0, cpus=1, model=HEAVY_BANDWIDTH_MODEL)
    ends_s = []
    for more in ([], [heavy]):
        costs, rules = Costs(checkpoint_s=40.0), NodeRules("asked", "nothing")
        found = run(rows + more, "2x1/28c", rules, policy="srtf", costs=costs)
        assert found.preemptions.tolist()[:2] == [1, 0]
        ends_s.append(found.end_s[0])
    slowed_s = 200 * (1 - MEMORY_CONTENTION_RATIO * NETWORK_CONTENTION_RATIO)
    assert ends_s[1] - ends_s[0] == pytest.approx(slowed_s)


@st.composite
def mixed_workloads(draw: st.DrawFn) -> Workload:
    """Trainings of all models beside CPU jobs, heavy ones among them. Speeds are not round, so times are no multiples."""
    shapes = st.sampled_from(({"gpus": 1, "gpus_per_node": 1}, {"gpus": 2, "gpus_per_node": 2}, {"gpus": 3},
                              {"gpus": 4, "nodes": 2, "gpus_per_node": 2}))  # fmt: skip
    rows = []
    for number in range(draw(st.integers(1, 14))):
        submit_s, run_s = float(draw(st.integers(0, 40))) * 30, float(draw(st.integers(1, 60))) * 37
        user = draw(st.sampled_from(("ann", "bob")))
        if draw(st.integers(0, 2)) == 0:
            model = draw(st.sampled_from(("", HEAVY_BANDWIDTH_MODEL)))
            rows.append(
                job(submit_s, run_s, 0, cpus=draw(st.integers(1, 20)), user=user, model=model, label=f"c{number}")
            )
            continue
        shape = draw(shapes)
        model = draw(st.sampled_from(("vgg16", "bat", "wavenet")))
        category = draw(st.sampled_from(("nlp", "cv", "inference")))
        cpus, preemptible = shape["gpus"] * draw(st.integers(1, 4)), draw(st.booleans())
        rows.append(job(submit_s, run_s, **shape, cpus=cpus, user=user, model=model, category=category,
                        preemptible=preemptible))  # fmt: skip
    return Workload.build("drawn", rows)


@pytest.mark.parametrize("policy", ["fifo-skip", "kelp-fifo", "kelp-drf", "coda", "backfill"])
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    workload=mixed_workloads(), cores=st.sampled_from(("asked", "adaptive")),
    costs=st.sampled_from((Costs(), Costs(start_s=20.0, restart_s=25.0))),
)  # fmt: skip
def test_all_engines_agree_while_cores_change(policy: str, workload: Workload, cores: str, costs: Costs) -> None:
    cluster, rules = parse_cluster("3x4/24c"), NodeRules(cores, "memory")
    quick, whole = (
        simulate(workload, cluster, make_policy(policy), costs=costs, engine=engine,
                 agents=NodeAgents(workload, cluster, CURVES, rules))
        for engine in ("auto", "snapshot")
    )  # fmt: skip
    assert history(quick) == history(whole)
    assert quick.node_measurements is not None
    _check_ledger(quick, 24)


def _check_ledger(outcome: SimulationOutcome, cores: int) -> None:
    """No node gives more cores than it has, at any time, and every job that ended did its work."""
    assert outcome.node_measurements is not None
    stretches = outcome.node_measurements.stretches
    held: dict[float, int] = {}
    for start_s, end_s, cpus in zip(stretches.start_s, stretches.end_s, stretches.cpus, strict=True):
        held[float(start_s)] = held.get(float(start_s), 0) + int(cpus)
        held[float(end_s)] = held.get(float(end_s), 0) - int(cpus)
    total = np.cumsum([held[at] for at in sorted(held)])
    assert total.max(initial=0) <= cores * len(outcome.cluster)
    assert total[-1] == 0
    of_job = np.bincount(stretches.job, weights=stretches.end_s - stretches.start_s, minlength=len(outcome.workload))
    assert of_job == pytest.approx(outcome.held_s)

"""What holds whatever a policy does within the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.per_job import per_job_csv
from slurm_soda.simulator.report.summary import summarise
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.sharing.true_slowdowns import MeasuredSlowdowns
from slurm_soda.simulator.speed.pair_table import load_pairs
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples
from tests.simulator.engine.worlds import job
from tests.simulator.sharing.players import Restless
from tests.simulator.sharing.replay import devices_of, progress_s

on_some_worlds = settings(max_examples=examples(30))
"""Decorator of properties: seconds in a test run."""
CLUSTERS = tuple(parse_cluster(text) for text in ("1x2/8c", "2x2/6c", "3x3", "1x1/4c+2x4/12c"))
MODELS = (("A", 16), ("A", 32), ("B", 0), ("Big", 0))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 12))):
        model, batch = draw(st.sampled_from(MODELS))
        gpus = draw(st.integers(1, 2))
        rows.append({
            **job(draw(st.integers(0, 60)) / 4, draw(st.integers(1, 200)) / 4, gpus), "model": model, "batch_size": batch,
            "cpus": gpus * draw(st.sampled_from((0, 1, 2))), "preemptible": draw(st.booleans()),
            "shares": draw(st.sampled_from((True, True, True, False))),
        })  # fmt: skip
    return Workload.build("drawn", rows)


COSTS = st.sampled_from((Costs(), Costs(start_s=1, restart_s=2), Costs(restart_s=3, round_s=5)))
PLAYERS = st.builds(Restless, seed=st.integers(0, 999), jobs_per_gpu=st.integers(1, 3))


def check_devices(outcome: SimulationOutcome, most: int) -> None:
    """No GPU has too many jobs, gangs are whole, and both records say the same."""
    seen, parts, cluster = outcome.sharing, outcome.segments, outcome.cluster
    assert seen is not None
    assert (seen.stretches.jobs <= most).all()
    first = np.concatenate(([0], np.cumsum(cluster.gpus)))
    for at, held in enumerate(devices_of(outcome)):
        assert len(held) == parts.gpus[at]
        nodes = np.searchsorted(first, sorted(held), side="right") - 1
        piece = slice(int(parts.node_start[at]), int(parts.node_start[at + 1]))
        asked = np.repeat(parts.node[piece], parts.node_gpus[piece])
        np.testing.assert_array_equal(np.sort(asked), nodes)
    stretched = ((seen.stretches.end_s - seen.stretches.start_s) * seen.stretches.jobs).sum()
    np.testing.assert_allclose(stretched, ((parts.end_s - parts.start_s) * parts.gpus).sum(), atol=1e-6)
    for device in range(len(first)):
        mine = seen.stretches.device == device
        start_s, end_s = seen.stretches.start_s[mine], seen.stretches.end_s[mine]
        assert (start_s[1:] >= end_s[:-1]).all()


def check_cpus(outcome: SimulationOutcome) -> None:
    """At no time do jobs hold more CPUs than nodes have (each job's CPUs are alike on all of its GPUs)."""
    parts, work = outcome.segments, outcome.workload
    for now_s in {*parts.start_s.tolist()}:
        held = np.zeros(len(outcome.cluster), dtype=np.int64)
        for at in np.flatnonzero((parts.start_s <= now_s) & (parts.end_s > now_s)).tolist():
            each = int(work.cpus[parts.job[at]]) // int(work.gpus[parts.job[at]])
            piece = slice(int(parts.node_start[at]), int(parts.node_start[at + 1]))
            np.add.at(held, parts.node[piece], parts.node_gpus[piece] * each)
        assert (held <= outcome.cluster.cpus).all()


@on_some_worlds
@given(workloads(), st.sampled_from(CLUSTERS), COSTS, PLAYERS)
def test_work_is_done_once_and_nothing_is_given_twice(
    pairs: Path, workload: Workload, cluster: SimulatedCluster, costs: Costs, player: Restless
) -> None:
    workload = workload.select(workload.gpus <= cluster.total_gpus)
    rules = SharingRules(pairs=pairs)
    outcome = simulate_sharing(workload, cluster, player, rules, jobs_per_gpu=player.jobs_per_gpu, costs=costs)
    check_devices(outcome, player.jobs_per_gpu)
    check_cpus(outcome)
    ended = np.isfinite(outcome.end_s)
    assert ended.all()
    done = progress_s(outcome, MeasuredSlowdowns(load_pairs(pairs), "v100"), costs)
    np.testing.assert_allclose(done, workload.run_s, rtol=1e-9, atol=1e-6)
    found = summarise(outcome)
    assert not found.gpu_util_ratio > 1 + 1e-9
    again = simulate_sharing(workload, cluster, player, rules, jobs_per_gpu=player.jobs_per_gpu, costs=costs)
    assert per_job_csv(again) == per_job_csv(outcome)


@on_some_worlds
@given(
    workloads(), st.sampled_from(CLUSTERS), st.sampled_from(("fifo", "sjf", "srsf", "tiresias-las")),
    st.sampled_from((Costs(), Costs(start_s=1, restart_s=2), Costs(checkpoint_s=2), Costs(round_s=7))),
)  # fmt: skip
def test_with_nobody_sharing_nothing_differs_to_the_bit(
    workload: Workload, cluster: SimulatedCluster, name: str, costs: Costs
) -> None:
    workload = workload.select(workload.gpus <= cluster.total_gpus)
    policy = make_policy(name, {})
    alone = simulate(workload, cluster, policy, costs=costs)
    beside = simulate_sharing(workload, cluster, policy, SharingRules(slowdown=1.5), costs=costs)
    for column in ("first_start_s", "end_s", "held_s", "preemptions", "failures"):
        np.testing.assert_array_equal(getattr(beside, column), getattr(alone, column))
    assert beside.sharing is not None
    assert not beside.sharing.shared_s.any()


@on_some_worlds
@given(workloads(), st.sampled_from(CLUSTERS), st.sampled_from((Costs(), Costs(checkpoint_s=2))), PLAYERS)
def test_nobody_is_preempted_more_often_than_the_bound_says(
    pairs: Path, workload: Workload, cluster: SimulatedCluster, costs: Costs, player: Restless
) -> None:
    workload = workload.select(workload.gpus <= cluster.total_gpus)
    bounds = {"jobs_per_gpu": player.jobs_per_gpu, "max_preemptions": 1}
    outcome = simulate_sharing(workload, cluster, player, SharingRules(pairs=pairs), costs=costs, **bounds)
    assert outcome.preemptions.max(initial=0) <= 1


@on_some_worlds
@given(workloads(), st.sampled_from(CLUSTERS), PLAYERS, st.sampled_from(("prior", "truth")))
def test_who_runs_out_of_memory_ends_all_the_same(
    pairs: Path, workload: Workload, cluster: SimulatedCluster, player: Restless, knowledge: str
) -> None:
    workload = workload.select(workload.gpus <= cluster.total_gpus)
    rules = SharingRules(pairs=pairs, knowledge=knowledge)
    costs = Costs(start_s=1.0, restart_s=1.0)
    outcome = simulate_sharing(workload, cluster, player, rules, jobs_per_gpu=player.jobs_per_gpu, costs=costs)
    assert np.isfinite(outcome.end_s).all()
    assert outcome.sharing is not None
    assert knowledge == "prior" or not outcome.sharing.out_of_memory.any()
    # Two pairs do not fit, A's 32 beside Big and two Big ones; after the moment in which that shows nobody tries it again.
    assert (outcome.sharing.out_of_memory <= 2).all()

"""What must hold of every run of every policy, on random workloads and clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import policy_names
from slurm_soda.simulator.cluster import NodeFailure, SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples
from tests.simulator.engine.ledger import Witness, empty, instants, is_whole, progress_s, runs_of, would_fit
from tests.simulator.engine.worlds import history, job, policy

on_some_worlds = settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Decorator of properties: seconds for all policies in a test run."""
PREEMPTIVE = {"gandiva", "tiresias-las", "tiresias-gittins", "srtf", "srsf"}
SHARE_AND_PREEMPT = {"srsf-share", "ojpap"}
LENDS_CORES = {"coda"}
"""Jobs without GPUs are aborted there, too, where they hold cores that were lent to them."""
SKIPPING = sorted({*PREEMPTIVE, "fifo-skip", "sjf", "smallest"})
COSTS = st.builds(
    Costs, start_s=st.sampled_from((0.0, 0.3)), restart_s=st.sampled_from((0.0, 1.5)),
    checkpoint_s=st.sampled_from((0.0, 0.7)), round_s=st.sampled_from((0.0, 0.0, 2.5)),
)  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn) -> SimulatedCluster:
    """Nodes of two types in two partitions; the first node is in both."""
    count = draw(st.integers(1, 4))
    gpus = np.array([4, *draw(st.lists(st.sampled_from((0, 2, 4)), min_size=count - 1, max_size=count - 1))])
    member = draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=count - 1, max_size=count - 1))
    return SimulatedCluster(
        name="drawn",
        node_names=tuple(f"n{row}" for row in range(count)),
        gpus=gpus,
        gpu_type=np.array([draw(st.integers(0, 1)) if has else -1 for has in gpus]),
        cpus=np.full(count, draw(st.sampled_from((8, 16)))),
        memory_mib=np.full(count, 100),
        in_partition=np.array([(True, True), *member]),
        partitions=("a", "b"),
        gpu_types=("k80", "v100"),
    )


@st.composite
def failures(draw: st.DrawFn) -> tuple[NodeFailure, ...]:
    """Two at most, of the first node, that end."""
    times = sorted(draw(st.lists(st.integers(0, 200), max_size=4, unique=True)))
    return tuple(NodeFailure(0, a / 4, b / 4) for a, b in zip(times[::2], times[1::2], strict=False))


GPU_SHAPES = (
    {"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpus": 3}, {"gpus": 4}, {"gpus": 4, "gpus_per_node": 4},
    {"gpus": 4, "nodes": 2, "gpus_per_node": 2}, {"gpus": 6, "nodes": 2}, {"gpus": 5, "nodes": 3},
)  # fmt: skip


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """GPU and CPU jobs of all kinds; some are larger than any cluster drawn, some run times are not known or wrong."""
    rows = []
    for shape in draw(st.lists(st.sampled_from((*GPU_SHAPES, {"gpus": 0}, {"gpus": 40})), min_size=1, max_size=14)):
        run_s = draw(st.integers(1, 300)) / 7
        rows.append(
            job(
                draw(st.integers(0, 60)) / 3,
                run_s,
                **shape,
                cpus=draw(st.integers(0 if shape["gpus"] else 1, 6)),
                memory_mib=draw(st.sampled_from((0, 0, 10, 60))),
                gpu_type=draw(st.sampled_from(("", "", "k80", "v100"))) if shape["gpus"] else "",
                partition=draw(st.sampled_from("aaab")),
                user=draw(st.sampled_from("xyz")),
                preemptible=draw(st.sampled_from((True, True, False))),
                restart_s=draw(st.sampled_from((0.0, 0.4))),
                expected_s=draw(st.sampled_from((run_s, run_s, 2 * run_s, run_s / 2, float("nan")))),
                time_limit_s=draw(st.sampled_from((run_s, 5 * run_s, float("inf")))),
            )
        )
    return Workload.build("drawn", rows)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", policy_names())
@on_some_worlds
@given(workload=workloads(), cluster=clusters(), down=failures(), costs=COSTS)
def test_every_outcome_adds_up(
    name: str, workload: Workload, cluster: SimulatedCluster, down: tuple[NodeFailure, ...], costs: Costs
) -> None:
    cluster, witness = replace(cluster, failures=down), Witness(len(cluster))
    outcome = simulate(workload, cluster, policy(name, quantum_s=10.0), costs=costs, speed=witness)
    runs = runs_of(outcome, witness)
    for _ in instants(outcome, runs):
        pass
    for run in runs:
        assert is_whole(workload, cluster, run.row, run.pieces)
        assert run.end_s > run.start_s

    # No job is lost: those that fit into the empty cluster end, with all their work done.
    fits = [would_fit(workload, cluster, row, empty(cluster)) for row in range(len(workload))]
    assert np.isfinite(outcome.end_s).tolist() == fits
    assert progress_s(outcome, runs, witness, costs)[fits] == pytest.approx(workload.run_s[fits], rel=1e-9)
    assert np.isfinite(outcome.first_start_s).tolist() == fits
    assert (workload.submit_s <= outcome.first_start_s)[fits].all()
    assert (outcome.first_start_s < outcome.end_s)[fits].all()

    counts = np.bincount(outcome.segments.job, minlength=len(workload))
    interrupted = outcome.preemptions + outcome.failures
    if costs.checkpoint_s and down:  # a node may fail while a preempted job saves its state
        assert (np.maximum(counts - 1, 0) <= interrupted).all()
    else:
        assert np.maximum(counts - 1, 0).tolist() == interrupted.tolist()
    assert outcome.held_s.sum() == pytest.approx(sum(run.end_s - run.start_s for run in runs))
    assert not outcome.preemptions[~workload.preemptible].any()
    assert name in LENDS_CORES or not outcome.preemptions[workload.gpus == 0].any()
    assert name in PREEMPTIVE | LENDS_CORES | SHARE_AND_PREEMPT or not outcome.preemptions.any()
    assert (np.diff(outcome.segments.end_s) >= 0).all()
    if costs.round_s:
        missed = outcome.segments.start_s / costs.round_s
        assert missed == pytest.approx(np.round(missed), abs=1e-9)


@pytest.mark.parametrize("engine", ["auto", "snapshot"])
@pytest.mark.sample(6)
@pytest.mark.parametrize("name", SKIPPING)
@on_some_worlds
@given(workload=workloads(), cluster=clusters(), down=failures())
def test_nothing_waits_that_could_start(
    engine: str, name: str, workload: Workload, cluster: SimulatedCluster, down: tuple[NodeFailure, ...]
) -> None:
    cluster, witness = replace(cluster, failures=down if engine == "snapshot" else ()), Witness(len(cluster))
    outcome = simulate(workload, cluster, policy(name, quantum_s=10.0), speed=witness, engine=engine)
    for now_s, free, waits in instants(outcome, runs_of(outcome, witness)):
        idle = [row for row in waits if would_fit(workload, cluster, row, free)]
        assert not idle, f"rows {idle} wait at {now_s} beside {free}"


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", policy_names())
@on_some_worlds
@given(workload=workloads(), cluster=clusters(), costs=COSTS, min_run_s=st.sampled_from((0.0, 2.2)))
def test_the_quick_engines_leave_nothing_out(
    name: str, workload: Workload, cluster: SimulatedCluster, costs: Costs, min_run_s: float
) -> None:
    """As in test_engines.py, with all that a request may say, wrong and unknown run times, and times that are no sums."""
    # No run ends at a threshold: whether it is reached just before may differ by the rounding of snapshots.
    chosen = policy(name, quantum_s=10.0, min_run_s=min_run_s, thresholds_gpu_s=[23.9317, 95.8713])
    costs = replace(costs, checkpoint_s=0.0)
    quick, whole = (
        simulate(workload, cluster, chosen, costs=costs, speed=Witness(len(cluster)), engine=engine)
        for engine in ("auto", "snapshot")
    )
    assert [row for row, _, _ in history(quick)] == [row for row, _, _ in history(whole)]
    assert [run[1:] for run in history(quick)] == [pytest.approx(run[1:], abs=1e-5) for run in history(whole)]

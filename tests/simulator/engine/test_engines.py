"""All engines tell the same story: sessions decide, event by event, as ``decide`` does of whole snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.choice import ENGINES, only_gpu_count_matters
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import GPUS, NODES, history, job, node_workloads, policy, pool_workloads

RANKED = ("fifo", "kelp-fifo", "fifo-skip", "sjf", "smallest", "srtf", "srsf", "tiresias-las", "tiresias-gittins")
NODES_OF_GPUS = parse_cluster(f"{NODES}x{GPUS}")
ONE_NODE = parse_cluster(f"1x{NODES * GPUS}")
CPU_NODES = parse_cluster(f"{NODES}x{GPUS}/16c")

COSTS = (Costs(), Costs(start_s=1.0, restart_s=2.5), Costs(round_s=1.0))


class Fickle:
    """Some jobs run half as fast on several nodes, the others twice as fast."""

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        return 1.0 if len(pieces) == 1 else 0.5 if row % 2 else 2.0


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RANKED)
@given(workload=pool_workloads(), min_run_s=st.sampled_from((0.0, 2.5)), costs=st.sampled_from(COSTS))
def test_counted_gpus_are_one_large_node(name: str, workload: Workload, min_run_s: float, costs: Costs) -> None:
    chosen = policy(name, min_run_s=min_run_s)
    quick = simulate(workload, NODES_OF_GPUS, chosen, costs=costs, engine="gpu-count")
    whole = simulate(workload, ONE_NODE, chosen, costs=costs, engine="snapshot")
    assert history(quick) == history(whole)
    assert quick.preemptions.tolist() == whole.preemptions.tolist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("within_queue", ["start", "small", "submit"])
@given(workload=pool_workloads())
def test_both_orders_within_a_queue(within_queue: str, workload: Workload) -> None:
    chosen = policy("tiresias-las", within_queue=within_queue)
    quick, whole = (
        simulate(workload, *run[:1], chosen, engine=run[1])
        for run in ((NODES_OF_GPUS, "gpu-count"), (ONE_NODE, "snapshot"))
    )
    assert history(quick) == history(whole)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RANKED)
@given(workload=node_workloads(), min_run_s=st.sampled_from((0.0, 2.5)), costs=st.sampled_from(COSTS))
def test_sifting_leaves_nothing_out(name: str, workload: Workload, min_run_s: float, costs: Costs) -> None:
    chosen = policy(name, min_run_s=min_run_s)
    sifted = simulate(workload, CPU_NODES, chosen, costs=costs, speed=Fickle(), engine="nodes")
    whole = simulate(workload, CPU_NODES, chosen, costs=costs, speed=Fickle(), engine="snapshot")
    assert history(sifted) == history(whole)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["backfill", "multifactor", "drf", "kelp-drf"])
@given(workload=node_workloads(), costs=st.sampled_from(COSTS))
def test_screening_leaves_nothing_out(name: str, workload: Workload, costs: Costs) -> None:
    screened, whole = (
        simulate(workload, CPU_NODES, policy(name), costs=costs, engine=engine) for engine in ("auto", "snapshot")
    )
    assert history(screened) == history(whole)


def test_gpus_are_counted_only_where_nothing_else_matters() -> None:
    plain = Workload.build("plain", [job(0, 1, 6)])
    assert only_gpu_count_matters(plain, NODES_OF_GPUS)
    for columns in (
        {"cpus": 1},
        {"memory_mib": 1},
        {"gpus": 0},
        {"gpu_type": "a100"},
        {"nodes": 2},
        {"gpus_per_node": 3},
    ):
        assert not only_gpu_count_matters(Workload.build("other", [{**job(0, 1, 6), **columns}]), NODES_OF_GPUS)
    assert not only_gpu_count_matters(plain, parse_cluster("2x4:a100+2x4:v100"))
    assert not only_gpu_count_matters(Workload.build("large", [job(0, 1, 13)]), NODES_OF_GPUS)


def test_an_engine_that_cannot_says_why() -> None:
    workload = Workload.build("w", [job(0, 1, cpus=2)])
    with pytest.raises(SimulatorError, match="engine gpu-count cannot be had here: nodes matter here"):
        simulate(workload, CPU_NODES, policy("fifo"), engine="gpu-count")
    with pytest.raises(SimulatorError, match="jobs take time to leave"):
        simulate(workload, CPU_NODES, policy("fifo"), costs=Costs(checkpoint_s=1), engine="nodes")
    with pytest.raises(SimulatorError, match="policy tiresias-las needs whole snapshots"):
        simulate(workload, CPU_NODES, policy("tiresias-las", promote_knob=2), engine="nodes")
    with pytest.raises(SimulatorError, match=r"no engine 'fast'; choose one of: " + ", ".join(ENGINES)):
        simulate(workload, CPU_NODES, policy("fifo"), engine="fast")

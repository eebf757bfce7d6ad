"""Sessions under the passing limit decide as whole snapshots do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.event_worlds import CLUSTERS, crowds
from tests.simulator.engine.test_engines import CPU_NODES, NODES_OF_GPUS, ONE_NODE, RANKED
from tests.simulator.engine.worlds import history, node_workloads, policy, pool_workloads

LIMITS_S = (2.0, 5.0, 20.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RANKED)
@given(workload=pool_workloads(), min_run_s=st.sampled_from((0.0, 2.5)), limit_s=st.sampled_from(LIMITS_S))
def test_counted_gpus_are_one_large_node(name: str, workload: Workload, min_run_s: float, limit_s: float) -> None:
    chosen = policy(name, min_run_s=min_run_s)
    quick = simulate(workload, NODES_OF_GPUS, chosen, engine="gpu-count", passing_limit_s=limit_s)
    whole = simulate(workload, ONE_NODE, chosen, engine="snapshot", passing_limit_s=limit_s)
    assert history(quick) == history(whole)
    assert quick.preemptions.tolist() == whole.preemptions.tolist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RANKED)
@given(workload=node_workloads(), min_run_s=st.sampled_from((0.0, 2.5)), limit_s=st.sampled_from(LIMITS_S))
def test_nodes_are_looked_at_alike(name: str, workload: Workload, min_run_s: float, limit_s: float) -> None:
    chosen = policy(name, min_run_s=min_run_s)
    quick, whole = (
        simulate(workload, CPU_NODES, chosen, engine=engine, passing_limit_s=limit_s)
        for engine in ("nodes", "snapshot")
    )
    assert history(quick) == history(whole)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["drf", "kelp-drf", "coda", "backfill", "multifactor"])
@given(workload=crowds(), cluster=st.sampled_from(CLUSTERS), limit_s=st.sampled_from(LIMITS_S))
def test_policies_that_hear_of_events_say_the_same_of_snapshots(
    name: str, workload: Workload, cluster: SimulatedCluster, limit_s: float
) -> None:
    quick, whole = (
        simulate(workload, cluster, policy(name), engine=engine, passing_limit_s=limit_s)
        for engine in ("auto", "snapshot")
    )
    assert history(quick) == history(whole)

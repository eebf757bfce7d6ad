"""drf, kelp-drf and coda decide event by event as they do of whole snapshots."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.session.event_session import EventPolicy
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.workload import Workload
from tests.policies.pools.worlds import policies
from tests.simulator.engine.event_worlds import CLUSTERS, crowds
from tests.simulator.engine.worlds import history

COSTS = (Costs(), Costs(start_s=1.0, restart_s=2.5), Costs(round_s=1.0))


def places(outcome: SimulationOutcome) -> list[tuple[int, float, list[int]]]:
    """Where each job was, by start."""
    segments = outcome.segments
    nodes = [sorted(segments.node[low:high].tolist()) for low, high in pairwise(segments.node_start.tolist())]
    return sorted(zip(segments.job.tolist(), segments.start_s.tolist(), nodes, strict=True))


def assert_alike(workload: Workload, cluster: SimulatedCluster, policy: Policy, costs: Costs) -> None:
    assert isinstance(policy, EventPolicy)
    events, whole = (
        simulate(workload, cluster, policy, costs=costs, engine=engine) for engine in ("nodes", "snapshot")
    )
    assert history(events) == history(whole)
    assert places(events) == places(whole)
    assert events.preemptions.tolist() == whole.preemptions.tolist()


@pytest.mark.parametrize("name", ["drf", "kelp-drf"])
@given(workload=crowds(), cluster=st.sampled_from(CLUSTERS), costs=st.sampled_from(COSTS))
def test_progressive_filling(name: str, workload: Workload, cluster: SimulatedCluster, costs: Costs) -> None:
    assert_alike(workload, cluster, make_policy(name), costs)


@given(workload=crowds(), cluster=st.sampled_from(CLUSTERS), policy=policies(), costs=st.sampled_from(COSTS))
def test_pools(workload: Workload, cluster: SimulatedCluster, policy: Policy, costs: Costs) -> None:
    assert_alike(workload, cluster, policy, costs)

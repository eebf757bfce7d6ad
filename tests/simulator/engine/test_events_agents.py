"""Agents that change cores leave sessions and whole snapshots alike."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.generators.soda import draw_month
from slurm_soda.simulator.node.model_core_curves import make_built_in_curves
from slurm_soda.simulator.node.node_agents import NodeAgents
from slurm_soda.simulator.node.node_rules import NodeRules
from tests.sampling import examples
from tests.simulator.engine.worlds import history

JOBS = examples(300)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["coda", "drf"])
def test_cores_that_change_are_followed(name: str) -> None:
    """Six nodes under the load of eighty: everything queues, borrows and gives back."""
    cluster = parse_cluster("6x5/28c")
    workload = draw_month(np.random.default_rng(1), JOBS, 13.0, "busy")
    outcomes = [
        simulate(
            workload, cluster, make_policy(name), engine=engine,
            agents=NodeAgents(workload, cluster, make_built_in_curves(), NodeRules(cores="adaptive", eliminates="all")),
        )
        for engine in ("nodes", "snapshot")
    ]  # fmt: skip
    events, whole = outcomes
    assert history(events) == history(whole)
    assert (events.preemptions.sum() > 0) == (name == "coda")

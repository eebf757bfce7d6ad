"""Which decider runs a simulation: the fastest one that says the same as the policy's ``decide``."""

from __future__ import annotations

import numpy as np
from slurm_soda.policies.demand import group_requests
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.session.nodes import NodeSession
from slurm_soda.policies.session.pool import PoolSession
from slurm_soda.policies.session.ranking import Ranked
from slurm_soda.simulator.cluster import Cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.decider import Decider
from slurm_soda.simulator.engine.sifted import SiftedDecider
from slurm_soda.simulator.engine.snapshots import SnapshotDecider
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload

ENGINES = ("auto", "pool", "nodes", "snapshot")
"""``pool``: GPUs are counted; ``nodes``: jobs are placed, and a whole snapshot is taken only where a job may preempt;
``snapshot``: a whole snapshot at each decision; ``auto``: the first that will do."""


def choose_decider(
    engine: str, policy: Policy, workload: Workload, cluster: Cluster, costs: Costs, *, placed: bool
) -> Decider:
    """The decider of an engine.

    Raises:
        SimulatorError: no such engine, or it cannot run this.
    """
    if engine not in ENGINES:
        raise SimulatorError(f"there is no engine {engine!r}; choose one of: {', '.join(ENGINES)}")
    ranking = policy.ranking() if isinstance(policy, Ranked) else None
    countable = not placed and is_pool(workload, cluster)
    steady = not costs.checkpoint_s and not cluster.failures
    if engine in ("pool", "nodes"):
        reasons = {
            f"policy {policy.name} needs whole snapshots": ranking is None,
            "jobs take time to leave, or nodes fail": not steady,
            "nodes matter here": engine == "pool" and not countable,
        }
        if why := [reason for reason, holds in reasons.items() if holds]:
            raise SimulatorError(f"the engine {engine} cannot run this: {why[0]}; leave the engine at auto")
    if ranking is None or not steady or engine == "snapshot":
        return SnapshotDecider(policy, workload, cluster, at_once=not costs.checkpoint_s)
    if countable and engine != "nodes":
        return PoolSession(ranking, cluster.total_gpus)
    demand = group_requests(workload, cluster.partitions, cluster.gpu_types)
    snapshots = SnapshotDecider(policy, workload, cluster, at_once=True)
    return SiftedDecider(NodeSession(ranking, demand, snapshots.nodes()), snapshots, demand.code.tolist())


def is_pool(workload: Workload, cluster: Cluster) -> bool:
    """Whether only the number of free GPUs decides who can run.

    True if every job takes GPUs in any split, on any node, and its CPUs and memory are not counted.
    """
    alike = len(cluster.partitions) == 1 and len(np.unique(cluster.gpu_type[cluster.gpus > 0])) <= 1
    anywhere = bool((workload.gpu_type == -1).all() and (workload.gpus > 0).all())
    split = len(cluster) == 1 or bool(((workload.gpus_per_node == 0) & (workload.nodes <= 1)).all())
    fits = bool((workload.gpus <= cluster.total_gpus).all())
    return alike and anywhere and split and fits and not workload.cpus.any() and not workload.memory_mib.any()

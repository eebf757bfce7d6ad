"""Which decider runs a simulation: the fastest one that says the same as the policy's ``decide``."""

from __future__ import annotations

import numpy as np
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.session.pool import PoolSession
from slurm_soda.policies.session.ranking import Ranked
from slurm_soda.simulator.cluster import Cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.decider import Decider
from slurm_soda.simulator.engine.snapshots import SnapshotDecider
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload

ENGINES = ("auto", "pool", "snapshot")
"""``pool``: GPUs are counted; ``snapshot``: a whole snapshot at each decision; ``auto``: the fastest that will do."""


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
    countable = not placed and not costs.checkpoint_s and not cluster.failures and is_pool(workload, cluster)
    if engine == "pool" and not (countable and ranking):
        why = f"policy {policy.name} needs whole snapshots" if ranking is None else "nodes matter here"
        raise SimulatorError(f"the engine pool cannot run this: {why}; leave --engine at auto")
    if ranking is not None and countable and engine != "snapshot":
        return PoolSession(ranking, cluster.total_gpus)
    return SnapshotDecider(policy, workload, cluster, at_once=not costs.checkpoint_s)


def is_pool(workload: Workload, cluster: Cluster) -> bool:
    """Whether only the number of free GPUs decides who can run.

    True if every job takes GPUs in any split, on any node, and its CPUs and memory are not counted.
    """
    alike = len(cluster.partitions) == 1 and len(np.unique(cluster.gpu_type[cluster.gpus > 0])) <= 1
    anywhere = bool((workload.gpu_type == -1).all() and (workload.gpus > 0).all())
    split = len(cluster) == 1 or bool(((workload.gpus_per_node == 0) & (workload.nodes <= 1)).all())
    fits = bool((workload.gpus <= cluster.total_gpus).all())
    return alike and anywhere and split and fits and not workload.cpus.any() and not workload.memory_mib.any()

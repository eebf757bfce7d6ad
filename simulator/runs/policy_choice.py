"""Policies as a person names them, and what they learn from past jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.shares import derive_shares
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.services.service_set import PLACED
from slurm_soda.simulator.workload import Workload

SAMPLES_PARAMETER = "samples_gpu_s"
"""The parameter by which policies learn from past jobs."""

SHARES_PARAMETER = "shares"
"""The parameter by which pools divide nodes as past jobs used them."""

MIN_RUN_PARAMETER = "min_run_s"
"""The parameter that keeps preemptions of one job apart."""

CHANGE_PARAMETER = "change_s"
"""The parameter that says what is lost when jobs change places; where nobody says, it is :attr:`Scenario.change_s`."""

TIME_SLICE_PARAMETER, TIME_SLICE_S, STOPS_PER_TIME_SLICE = "quantum_s", 60.0, 10.0
"""The parameter that says how long a time slice is; where nobody says, it is Gandiva's minute, or ten times what it takes to
stop a job and start another one: Gandiva's own stops take a second of the minute."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy as a person named it, with what was set of its parameters; it can be sent to another process."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    """The system that it is the policy of; empty: it was named itself."""
    nodes: NodeRules | None = None
    """What else the system does; None: what the scenario says."""
    serves: str = PLACED
    """How it serves where services are simulated."""

    @property
    def label(self) -> str:
        """What it is called in tables and files."""
        return self.system or self.name


def pool_shares_from(past: Workload, cluster: SimulatedCluster) -> dict[NodeClass, PoolShare]:
    """How pools divide a cluster's nodes after these jobs."""
    kinds = [cluster.gpu_types[code] if code >= 0 else "" for code in cluster.gpu_type.tolist()]
    classes = Counter(NodeClass(*row) for row in zip(kinds, cluster.gpus.tolist(), cluster.cpus.tolist(), strict=True))
    columns = (past.gpus, past.nodes, past.cpus, past.run_s, past.gpu_type)
    history = [
        PastPoolJob(gpus, nodes, cpus, run_s, gpu_type=past.gpu_types[code] if code >= 0 else "")
        for gpus, nodes, cpus, run_s, code in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return {node_class: derived.share for node_class, derived in derive_shares(history, classes).items()}


def service_gpu_s(workload: Workload) -> FloatColumn:
    """GPU service of each job that uses GPUs: GPUs x run time."""
    service = workload.gpus * workload.run_s
    return np.asarray(service[service > 0], dtype=np.float64)

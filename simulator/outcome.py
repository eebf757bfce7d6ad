"""What a simulation found: one row a job, and every stretch of time that a job held resources."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.node.node_measurements import NodeMeasurements
from slurm_soda.simulator.services.record import ServicesRecord
from slurm_soda.simulator.sharing.sharing_record import SharingRecord
from slurm_soda.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class AllocationSegments:
    """Stretches of time on resources, in the order of their ends. Columns of equal length."""

    job: IntColumn
    """Row of the workload."""
    start_s: FloatColumn
    end_s: FloatColumn
    gpus: IntColumn
    cpus: IntColumn
    """Where cores change during a run (:attr:`SimulationOutcome.node_measurements`), those at its end."""
    node_start: IntColumn
    """Compressed rows: segment ``i`` was on ``node[node_start[i]:node_start[i + 1]]``; empty where nodes play no part
    (a cluster simulated as a number of GPUs)."""
    node: IntColumn
    node_gpus: IntColumn


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """One policy's run of one workload on one cluster. Columns are in the workload's row order.

    JCT is ``end_s - submit_s``; time waited is JCT less time on resources.
    """

    policy: str
    workload: Workload
    cluster: SimulatedCluster
    first_start_s: FloatColumn
    """NaN for a job that never started."""
    end_s: FloatColumn
    """NaN for a job that never ended (it is larger than the cluster, or nodes stayed down)."""
    held_s: FloatColumn
    """Time on resources over all runs, restarts included."""
    preemptions: IntColumn
    """Times that a policy took the job off its resources."""
    failures: IntColumn
    """Times that a node took the job down."""
    segments: AllocationSegments
    decisions: int
    """Times that the policy was asked."""
    cpu_s: float
    """Processor time of the simulation itself, without reading the trace."""
    node_measurements: NodeMeasurements | None = None
    """Cores and GPU utilisation over time; None where nodes had no part in speed."""
    sharing: SharingRecord | None = None
    """Who shared GPUs how long; None where jobs cannot share."""
    services: ServicesRecord | None = None
    """What inference services held beside the jobs, and how they answered; None where there are none."""

"""One outcome in figures."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.cluster import UNCOUNTED, SimulatedCluster
from slurm_soda.simulator.node.node_measurements import UsageIntervals
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.paired_statistics import bounded_slowdown, jains_index
from slurm_soda.simulator.report.sharing_summary import gpus_in_use_s, summarise_sharing
from slurm_soda.simulator.report.soda_figures import held_by_all, measure_activity, measure_start_delays

UNKNOWN = math.nan


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of one run, over the jobs that ended; NaN where there is none. Times in seconds.

    JCT (job completion time) is ``end_s - submit_s``. Time waited is JCT less all time on resources, so waits after
    preemptions count and a restart's overhead does not. Percentiles are numpy's linear ones: the value at rank
    ``q * (jobs - 1)`` of the sorted JCTs, between two jobs in proportion. ``sodactl demo`` counts the same way, from
    Slurm's accounting instead of an outcome.
    """

    jobs: int
    """Of the workload, unfinished ones too."""
    unfinished: int
    """Jobs that never ended: larger than the cluster, or nodes stayed down."""
    avg_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    avg_queue_s: float
    avg_slowdown: float
    """Mean of JCT over run time (:func:`~slurm_soda.simulator.report.paired_statistics.bounded_slowdown`)."""
    fairness_index: float
    """Jain's index of users' mean slowdowns: 1 if all users' jobs are slowed down alike; NaN if nobody knows users."""
    avg_gpu_jct_s: float
    """Mean JCT of the jobs that use GPUs."""
    avg_cpu_jct_s: float
    """Mean JCT of the jobs without GPUs; NaN if there are none."""
    makespan_s: float
    """First submission to last end."""
    gpu_util_ratio: float
    """GPU seconds that jobs held within the makespan, over the cluster's GPUs times the makespan; NaN without GPUs. Every
    job counts, and so do restarts; a GPU that jobs share counts once. (The demo's figure of this name is NVML's; its
    ``gpu_allocated_ratio`` is this one.)"""
    cpu_util_ratio: float
    """The same of CPU cores; NaN where the cluster does not count them."""
    gpu_active_ratio: float
    """These and the following as in :class:`~slurm_soda.simulator.report.soda_figures.ClusterActivity`."""
    gpu_busy_ratio: float
    gpu_busy_all_ratio: float
    cpu_active_ratio: float
    gpu_at_once_ratio: float
    """These and the following as in :class:`~slurm_soda.simulator.report.soda_figures.StartDelays`."""
    gpu_over_minute_ratio: float
    gpu_over_hour_ratio: float
    cpu_within_10s_ratio: float
    cpu_within_minute_ratio: float
    gpu_shared_ratio: float
    """These and the following as in :class:`~slurm_soda.simulator.report.sharing_summary.SharingSummary`."""
    gpu_shared_s: float
    shared_slowdown: float
    out_of_memory: int
    revoked: int
    lost_gpu_s: float
    parted: int
    preemptions: int
    failures: int
    """Times that a node took a job down."""
    decisions: int
    cpu_s: float
    """Processor time of the simulation, without reading the trace."""
    jobs_per_cpu_s: float

    def document(self) -> dict[str, Any]:
        """As plain data; NaN stands for unknown."""
        return asdict(self)


def jct_s(outcome: SimulationOutcome) -> FloatColumn:
    """Job completion time of each job; NaN for one that never ended."""
    return outcome.end_s - outcome.workload.submit_s


def queue_s(outcome: SimulationOutcome) -> FloatColumn:
    """Time each job waited, before its first start and after preemptions; NaN for one that never ended."""
    # Sums of many stretches differ from one long stretch in the last bits: no wait is below 0.
    return np.maximum(jct_s(outcome) - outcome.held_s, 0.0)


def slowdowns(outcome: SimulationOutcome) -> FloatColumn:
    """JCT over run time of each job; NaN for one that never ended."""
    return bounded_slowdown(jct_s(outcome), outcome.workload.run_s)


def counts_cpus(cluster: SimulatedCluster) -> bool:
    """Whether the cluster says how many CPU cores its nodes have."""
    return bool(cluster.cpus.sum() > 0 and (cluster.cpus < UNCOUNTED).all())


def summarise(outcome: SimulationOutcome) -> RunSummary:
    """Figures of a run."""
    workload, ended = outcome.workload, np.isfinite(outcome.end_s)
    took_s = jct_s(outcome)
    p50_s, p95_s, p99_s = _percentiles(took_s[ended])
    last_s = float(outcome.end_s[ended].max()) if ended.any() else UNKNOWN
    makespan_s = last_s - float(workload.submit_s.min()) if ended.any() else UNKNOWN
    held = held_by_all(outcome)
    gpu_capacity = outcome.cluster.total_gpus * makespan_s
    gpu_s = gpus_in_use_s(outcome, -np.inf, last_s)
    cpus = int(outcome.cluster.cpus.sum()) if counts_cpus(outcome.cluster) else 0
    return RunSummary(
        jobs=len(workload),
        unfinished=len(workload) - int(ended.sum()),
        avg_jct_s=_mean(took_s[ended]),
        p50_jct_s=p50_s,
        p95_jct_s=p95_s,
        p99_jct_s=p99_s,
        avg_queue_s=_mean(queue_s(outcome)[ended]),
        avg_slowdown=_mean(slowdowns(outcome)[ended]),
        fairness_index=_fairness(workload.user[ended], slowdowns(outcome)[ended]),
        avg_gpu_jct_s=_mean(took_s[ended & (workload.gpus > 0)]),
        avg_cpu_jct_s=_mean(took_s[ended & (workload.gpus == 0)]),
        makespan_s=makespan_s,
        gpu_util_ratio=_held_ratio(held, held.gpus, gpu_capacity, last_s)
        if gpu_s is None
        else _over(gpu_s, gpu_capacity),
        cpu_util_ratio=_held_ratio(held, held.cpus, cpus * makespan_s, last_s),
        **asdict(measure_activity(outcome, cpus)),
        **asdict(measure_start_delays(outcome)),
        **asdict(summarise_sharing(outcome)),
        preemptions=int(outcome.preemptions.sum()),
        failures=int(outcome.failures.sum()),
        decisions=outcome.decisions,
        cpu_s=outcome.cpu_s,
        jobs_per_cpu_s=len(workload) / outcome.cpu_s if outcome.cpu_s > 0 else UNKNOWN,
    )


def _held_ratio(parts: UsageIntervals, held: IntColumn, capacity: float, last_s: float) -> float:
    """What jobs held until ``last_s``, over ``capacity`` (units x seconds)."""
    time_s = np.maximum(np.minimum(parts.end_s, last_s) - parts.start_s, 0.0)
    return _over(float((time_s * held).sum()), capacity)


def _over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else UNKNOWN


def _fairness(user: IntColumn, slowdown: FloatColumn) -> float:
    known = user >= 0
    jobs = np.bincount(user[known])
    total = np.bincount(user[known], slowdown[known])
    return jains_index(total[jobs > 0] / jobs[jobs > 0]) if known.any() else UNKNOWN


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else UNKNOWN


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float, float]:
    if not len(values):
        return UNKNOWN, UNKNOWN, UNKNOWN
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    return p50, p95, p99

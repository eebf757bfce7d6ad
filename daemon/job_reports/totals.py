"""All runs and nodes of a job in a few figures; pure functions of what a report says of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from slurm_soda.daemon.job_reports.model import GpuFigures, NodeFigures, ReportedJob, RunFigures, UseTotals
from slurm_soda.daemon.job_reports.stored_facts import StoredFacts
from slurm_soda.daemon.store.jobs.finished_jobs import job_usage_totals

_SECONDS_OF_HOUR = 3600.0


def use_totals(facts: StoredFacts, job: ReportedJob, runs: Sequence[RunFigures], run_s: float) -> UseTotals:
    """CPU time by Slurm's accounting where it has it, as in ``sodactl history``. Of memory the larger figure: Slurm's is the
    peak of one task (MaxRSS), and a node may have several.
    """
    gpus, nodes = list(each_gpu(runs)), [node for run in runs for node in run.nodes]
    measured_s = math.fsum(gpu.measured_s for gpu in gpus)
    counted = job_usage_totals(facts.job, facts.usage)
    fullest = max(gpus, key=lambda gpu: gpu.memory_peak_mib, default=None)
    peaks = [counted.memory_peak_mib, *(node.memory_peak_mib for node in nodes)]
    powered = [gpu.energy_wh for gpu in gpus if gpu.energy_wh is not None]
    return UseTotals(
        run_s=run_s,
        gpu_hours=job.gpus * run_s / _SECONDS_OF_HOUR,
        gpu_util_ratio=_mean_util(gpus, measured_s) if measured_s > 0 else counted.gpu_util_ratio,
        gpu_idle_ratio=math.fsum(gpu.idle_s for gpu in gpus) / measured_s if measured_s > 0 else None,
        gpus_never_used=sum(gpu.never_used for gpu in each_gpu(runs[-1:])),
        gpu_memory_peak_mib=None if fullest is None else fullest.memory_peak_mib,
        gpu_memory_mib=None if fullest is None else fullest.memory_mib,
        energy_wh=math.fsum(powered) if powered else None,
        cores_used=_cores_used(nodes, counted.cpu_s, counted.cpu_source == "accounting", run_s),
        memory_peak_mib=max((peak for peak in peaks if peak is not None), default=None),
        memory_asked_mib=None if job.memory_mib is None else job.memory_mib / max(job.nodes, 1),
    )


def each_gpu(runs: Iterable[RunFigures]) -> Iterator[GpuFigures]:
    """GPU by GPU, by run and node."""
    return (gpu for run in runs for node in run.nodes for gpu in node.gpus)


def _mean_util(gpus: Sequence[GpuFigures], measured_s: float) -> float:
    return math.fsum(gpu.util_ratio * gpu.measured_s for gpu in gpus) / measured_s


def _cores_used(nodes: Sequence[NodeFigures], cpu_s: float | None, accounted: bool, run_s: float) -> float | None:
    """By Slurm's CPU time over all runs; else by the agents', over the time in which each of them looked."""
    if accounted and cpu_s is not None and run_s > 0:
        return cpu_s / run_s
    seen = [node for node in nodes if node.cores_used is not None and node.cpu_s is not None]
    if not seen or run_s <= 0:
        return None
    return math.fsum(node.cpu_s or 0.0 for node in seen) / run_s

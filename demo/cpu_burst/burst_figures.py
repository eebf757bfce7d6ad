"""The burst's figures: pure arithmetic on what accounting recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from slurm_soda.demo.cpu_burst.burst_accounting import BurstJobRecord, BurstRun

GPU_QUEUE_RATIO_AT_MOST = 0.3
CPU_QUEUE_RATIO_AT_MOST = 1.2
CORE_RETURN_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class BurstNode:
    """What every node of the demo's cluster has."""

    cores: int
    gpus: int


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The pools in force; as it is without arguments: none."""

    borrowing: frozenset[str] = frozenset()
    """Partitions whose jobs Slurm aborts for others."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Cores that all jobs of a partition may hold on one node."""
    cpu_cores: int | None = None
    """Cores of each node that CPU jobs own; more than these they borrow. ``None``: nothing is borrowed."""


NO_POOLS = PoolLayout()


@dataclass(frozen=True, slots=True)
class BurstFigures:
    """One run of the mix. Times in seconds."""

    gpu_jobs: int
    cpu_jobs: int
    gpu_queue_s: float
    """Mean time from submission to the start of the run that completed."""
    gpu_queue_p95_s: float
    cpu_queue_s: float
    cpu_queue_p95_s: float
    makespan_s: float
    aborts: int
    most_aborts: int
    """Of one job."""
    lost_core_s: float
    """Core time of the aborted runs."""
    borrowed_core_s: float
    """Core time that CPU jobs held beyond what they own of each node."""
    returns: int
    """GPU jobs that got cores back from borrowers."""
    longest_return_s: float
    """From the moment that only borrowers stood in a GPU job's way to its start, the longest; 0 without any."""


def compute_figures(jobs: Sequence[BurstJobRecord], node: BurstNode, layout: PoolLayout = NO_POOLS) -> BurstFigures:
    """Figures of one run under these pools.

    Raises:
        ValueError: no training jobs, or no CPU jobs.
    """
    gpu_s = [job.queue_s for job in jobs if job.gpus]
    cpu_s = [job.queue_s for job in jobs if not job.gpus]
    if not gpu_s or not cpu_s:
        raise ValueError("a burst needs training jobs and CPU jobs to make figures of")
    aborted = [(job, run) for job in jobs for run in job.runs if run.aborted]
    back_s = list(core_return_times(jobs, node, layout).values())
    return BurstFigures(
        gpu_jobs=len(gpu_s),
        cpu_jobs=len(cpu_s),
        gpu_queue_s=float(np.mean(gpu_s)),
        gpu_queue_p95_s=float(np.percentile(gpu_s, 95)),
        cpu_queue_s=float(np.mean(cpu_s)),
        cpu_queue_p95_s=float(np.percentile(cpu_s, 95)),
        makespan_s=max(job.end_s for job in jobs) - min(job.submit_s for job in jobs),
        aborts=len(aborted),
        most_aborts=max(job.aborts for job in jobs),
        lost_core_s=sum(job.cores * (run.end_s - run.start_s) for job, run in aborted),
        borrowed_core_s=borrowed_core_s(jobs, layout.cpu_cores),
        returns=len(back_s),
        longest_return_s=max(back_s, default=0.0),
    )


def borrowed_core_s(jobs: Sequence[BurstJobRecord], cpu_cores: int | None) -> float:
    """Core time that CPU jobs held beyond ``cpu_cores`` of each node."""
    if cpu_cores is None:
        return 0.0
    total = 0.0
    runs = [(job.cores, run) for job in jobs if not job.gpus for run in job.runs]
    for name in {run.node for _, run in runs}:
        here = [(cores, run) for cores, run in runs if run.node == name]
        instants = sorted({t for _, run in here for t in (run.start_s, run.end_s)})
        for at_s, next_s in pairwise(instants):
            held = sum(cores for cores, run in here if run.start_s <= at_s < run.end_s)
            total += max(0, held - cpu_cores) * (next_s - at_s)
    return total


def core_return_times(jobs: Sequence[BurstJobRecord], node: BurstNode, layout: PoolLayout) -> dict[int, float]:
    """For each GPU job that got cores back from borrowing CPU jobs: seconds from its claim to its start.

    The claim begins when, on the node where the job then started, GPUs and cores would have sufficed without the
    borrowers and within its partition's limit, and keeps sufficing until it starts: from then on nothing but them was
    in its way.
    """
    others = [(job, run) for job in jobs for run in job.runs]
    found: dict[int, float] = {}
    for job in jobs:
        if not job.gpus:
            continue
        run = job.runs[0]
        near = [(o, r) for o, r in others if r.node == run.node and o.job_id != job.job_id]
        instants = {
            job.submit_s,
            *(t for _, r in near for t in (r.start_s, r.end_s) if job.submit_s < t <= run.start_s),
        }
        claim_s = run.start_s
        for at_s in sorted(instants, reverse=True):
            if not _cores_suffice(job, at_s, near, node, layout):
                break
            claim_s = at_s
        gave = [r for o, r in near if r.aborted and not o.gpus and claim_s <= r.end_s <= run.start_s]
        if gave:
            found[job.job_id] = run.start_s - claim_s
    return found


def _cores_suffice(
    job: BurstJobRecord,
    at_s: float,
    near: Sequence[tuple[BurstJobRecord, BurstRun]],
    node: BurstNode,
    layout: PoolLayout,
) -> bool:
    present = [(o, r) for o, r in near if r.start_s <= at_s < r.end_s]
    held = [o for o, r in present if o.gpus or r.partition not in layout.borrowing]
    gpus, cores = sum(o.gpus for o in held), sum(o.cores for o in held)
    partition = job.runs[0].partition
    beside = sum(o.cores for o, r in present if r.partition == partition)
    within = beside + job.cores <= layout.limits.get(partition, node.cores)
    return within and gpus + job.gpus <= node.gpus and cores + job.cores <= node.cores


def check_promises(stock: Mapping[str, Any], pools: Mapping[str, Any], max_aborts: int) -> list[dict[str, Any]]:
    """What the demo promises and what came of it: name, value, limit and whether it holds."""
    rows = [
        ("GPU jobs' queueing, pools over stock", _ratio(pools, stock, "gpu_queue_s"), GPU_QUEUE_RATIO_AT_MOST),
        ("CPU jobs' queueing, pools over stock", _ratio(pools, stock, "cpu_queue_s"), CPU_QUEUE_RATIO_AT_MOST),
        ("Longest return of borrowed cores, s", float(pools["longest_return_s"]), CORE_RETURN_WITHIN_S),
        ("Most aborts of one job", float(pools["most_aborts"]), float(max_aborts)),
    ]
    return [
        {"name": name, "value": round(value, 4), "at_most": limit, "holds": value <= limit}
        for name, value, limit in rows
    ]


def _ratio(pools: Mapping[str, Any], stock: Mapping[str, Any], key: str) -> float:
    return float(pools[key]) / float(stock[key]) if stock[key] else float("inf") if pools[key] else 1.0


def run_document(jobs: Sequence[BurstJobRecord], node: BurstNode, layout: PoolLayout = NO_POOLS) -> dict[str, Any]:
    """One run for the report: its figures, and ``per_job`` by submission. Times in Unix seconds."""
    back_s = core_return_times(jobs, node, layout)
    ordered = sorted(jobs, key=lambda job: (job.submit_s, job.job_id))
    numbers = {
        k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(compute_figures(jobs, node, layout)).items()
    }
    return {
        **numbers,
        "per_job": [
            {
                **asdict(job),
                "queue_s": job.queue_s,
                "aborts": job.aborts,
                "return_s": back_s.get(job.job_id),
                "runs": [asdict(run) for run in job.runs],
            }
            for job in ordered
        ],
    }

"""The demo's figures: pure arithmetic on what accounting and agents recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slurm_soda.demo.accounting import MixJobRecord


@dataclass(frozen=True, slots=True)
class StoredJobUsage:
    """What slurm-soda's own store says of a job, for comparison and for what accounting does not know."""

    jct_s: float | None = None
    gpu_util_ratio: float | None = None
    """Mean utilisation of the job's GPUs while it ran, by NVML."""


@dataclass(frozen=True, slots=True)
class MixFigures:
    """One run of the mix in numbers. Times in seconds; JCT is job completion time, submission to end."""

    jobs: int
    avg_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    avg_queue_s: float
    """Mean time that a job was not running, waits after preemptions included."""
    makespan_s: float
    """First submission to last end."""
    gpu_util_ratio: float | None
    """Mean utilisation of all the cluster's GPUs over the makespan; ``None`` if no agent reported."""
    gpu_allocated_ratio: float
    """Part of the cluster's GPU time in which a job held the GPU."""
    preemptions: int
    store_jct_difference_s: float | None
    """Largest difference between the store's JCT and accounting's; ``None`` if the store has no job."""


def compute_figures(
    jobs: Sequence[MixJobRecord], gpus: int, measured: Mapping[int, StoredJobUsage] | None = None
) -> MixFigures:
    """Figures of one run; ``gpus`` is the cluster's number, ``measured`` is by job id.

    GPU utilisation: jobs whose utilisation nobody measured (too short for a sample) count with the mean of the others,
    weighted by GPU time.

    Raises:
        ValueError: no jobs.
    """
    if not jobs:
        raise ValueError("no jobs to make figures of; run the mix first")
    jct_s = np.array([job.jct_s for job in jobs])
    gpu_s = np.array([job.run_s * job.gpus for job in jobs])
    makespan_s = max(job.end_s for job in jobs) - min(job.submit_s for job in jobs)
    allocated = float(gpu_s.sum()) / (gpus * makespan_s) if makespan_s > 0 else 0.0
    known = [(measured or {}).get(job.job_id, StoredJobUsage()) for job in jobs]
    differences = [abs(m.jct_s - job.jct_s) for m, job in zip(known, jobs, strict=True) if m.jct_s is not None]
    util = _mean_util(known, gpu_s)
    return MixFigures(
        jobs=len(jobs),
        avg_jct_s=float(jct_s.mean()),
        p50_jct_s=float(np.percentile(jct_s, 50)),
        p95_jct_s=float(np.percentile(jct_s, 95)),
        avg_queue_s=float(np.mean([job.queue_s for job in jobs])),
        makespan_s=makespan_s,
        gpu_util_ratio=None if util is None else util * allocated,
        gpu_allocated_ratio=allocated,
        preemptions=sum(job.preemptions for job in jobs),
        store_jct_difference_s=max(differences, default=None),
    )


def _mean_util(known: Sequence[StoredJobUsage], gpu_s: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    """Utilisation while allocated, weighted by GPU time, over the jobs that have one."""
    pairs = [(m.gpu_util_ratio, s) for m, s in zip(known, gpu_s.tolist(), strict=True) if m.gpu_util_ratio is not None]
    total = sum(seconds for _, seconds in pairs)
    return sum(util * seconds for util, seconds in pairs) / total if total > 0 else None


def job_document(job: MixJobRecord, measured: StoredJobUsage) -> dict[str, Any]:
    """One job for the report: times in Unix seconds, durations in seconds."""
    return {
        "job_id": job.job_id,
        "name": job.name,
        "user": job.user,
        "state": job.state,
        "gpus": job.gpus,
        "submit_s": job.submit_s,
        "end_s": job.end_s,
        "jct_s": job.jct_s,
        "queue_s": job.queue_s,
        "run_s": job.run_s,
        "preemptions": job.preemptions,
        "gpu_util_ratio": measured.gpu_util_ratio,
        "store_jct_s": measured.jct_s,
        "runs": [asdict(run) for run in job.runs],
    }


def run_document(jobs: Sequence[MixJobRecord], gpus: int, measured: Mapping[int, StoredJobUsage]) -> dict[str, Any]:
    """One run for the report: its figures, and ``per_job``, a list by submission."""
    ordered = sorted(jobs, key=lambda job: (job.submit_s, job.job_id))
    numbers = {key: _rounded(value) for key, value in asdict(compute_figures(jobs, gpus, measured)).items()}
    return {**numbers, "per_job": [job_document(job, measured.get(job.job_id, StoredJobUsage())) for job in ordered]}


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Delayed:
    """A job that completes later under slurm-soda than under stock Slurm."""

    name: str
    gpus: int
    stock_jct_s: float
    soda_jct_s: float


def most_delayed(runs: Mapping[str, Any]) -> Delayed | None:
    """The job that pays most for what the others gain, in seconds of completion time; ``None``: no job completes later.

    Both runs have the same jobs in the same order of submission.
    """
    pairs = zip(runs["stock"].get("per_job", ()), runs["soda"].get("per_job", ()), strict=True)
    found = [Delayed(soda["name"], soda["gpus"], stock["jct_s"], soda["jct_s"]) for stock, soda in pairs]
    worst = max(found, key=lambda job: job.soda_jct_s - job.stock_jct_s, default=None)
    return worst if worst is not None and worst.soda_jct_s > worst.stock_jct_s else None


def compare_figures(stock: Mapping[str, Any], soda: Mapping[str, Any]) -> dict[str, float]:
    """Figures of soda over stock's: below 1 is better, except for utilisation."""
    keys = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "avg_queue_s", "makespan_s", "gpu_util_ratio")
    return {
        key.removesuffix("_s"): round(soda[key] / stock[key], 4) for key in keys if soda.get(key) and stock.get(key)
    }

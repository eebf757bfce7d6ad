"""What a user of the cluster would type to submit the burst's jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_soda.demo.cpu_burst.burst_jobs import LIMIT_MIN, BurstJob


def sbatch_argv(job: BurstJob) -> list[str]:
    """Command line that submits a job whose script comes on standard input; the same under stock Slurm and under pools.

    A training job says that it saves its state at SIGTERM: only then it is lent GPUs of another pool.
    """
    gpus = [f"--gres=gpu:{job.gpus}", "--soda-checkpoint=TERM"] if job.gpus else []
    return [
        "sbatch",
        "--parsable",
        "--requeue",
        f"--time={LIMIT_MIN}",
        "--output=/dev/null",
        f"--job-name={job.name}",
        "--nodes=1",
        f"--cpus-per-task={job.cores}",
        *gpus,
    ]


def batch_script(job: BurstJob) -> str:
    """The job's script; it is the sleep itself, so that a SIGTERM ends it at once."""
    return f"#!/bin/sh\nexec sleep {job.run_s:g}\n"


def build_orders(jobs: Sequence[BurstJob]) -> list[dict[str, Any]]:
    """What the driver needs to submit the jobs, in the order of arrival."""
    return [
        {"at_s": job.arrival_s, "user": job.user, "argv": sbatch_argv(job), "script": batch_script(job)} for job in jobs
    ]

"""The order of jobs by id as Slurm compares ids: the last thing that counts where all else is equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.snapshot import IntColumn
from slurm_soda.slurm_ext.client import SlurmJob


def find_id_places(jobs: Sequence[SlurmJob]) -> IntColumn:
    """Place of each job by id as Slurm compares ids; empty where that is the order in which they come, by ``job_id``.

    A task of an array that became a job of its own got an id long after its array, but counts by the array's. What is left
    of an array has that id too, and is behind its tasks.
    """
    if not any(job.array_task for job in jobs):
        return np.zeros(0, dtype=np.int64)
    by_id = sorted(range(len(jobs)), key=lambda row: _compared_id(jobs[row]))
    places = np.empty(len(jobs), dtype=np.int64)
    places[by_id] = np.arange(len(jobs))
    return places


def _compared_id(job: SlurmJob) -> tuple[int, float]:
    single = job.array_task and not job.array_rest
    return (job.array_job_id, int(job.array_task)) if single else (job.job_id, math.inf)

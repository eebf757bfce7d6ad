"""Preemptions that were in vain: the jobs that they made room for did not start, although the GPUs were free.

A policy cannot know everything that keeps Slurm from starting a job. Whatever it is, it is likely to hold a second time, for
that job and for others like it. So for a while no one is preempted for jobs of the same owner with the same request for
GPUs, each time twice as long, until such a job starts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, JobState, JobTable

PAUSE_RATIO = 10.0
"""First pause over the time that GPUs stood idle in vain: so they do for a tenth of the time at most."""
MAX_PAUSE_S = 86_400.0


class GpuRequest(NamedTuple):
    """Whose job, and which GPUs it asks for; the same for its whole life, whatever nodes and partition it gets."""

    user: str
    gpus: int
    """Over all nodes."""
    gpus_per_node: int
    """0: any split will do."""
    gpu_type: str
    """Empty: any."""


def compute_pause_s(vain_attempts: int, wait_s: float) -> float:
    """How long no one is preempted for a request after so many vain attempts in a row.

    Args:
        vain_attempts: at least 1.
        wait_s: how long the last job could have started, and did not.
    """
    return min(PAUSE_RATIO * wait_s * 2.0 ** min(vain_attempts - 1, 30), MAX_PAUSE_S)


def bar_preemptions(jobs: JobTable, paused: Collection[GpuRequest]) -> JobTable:
    """The jobs, of whom waiting ones with these requests may have no one preempted for them."""
    if not paused:
        return jobs
    barred = np.zeros(len(jobs), dtype=np.bool_)
    for request in paused:
        if request.user not in jobs.users or (request.gpu_type and request.gpu_type not in jobs.gpu_types):
            continue
        gpu_type = jobs.gpu_types.index(request.gpu_type) if request.gpu_type else -1
        barred |= (
            (jobs.user == jobs.users.index(request.user))
            & (jobs.gpus == request.gpus)
            & (jobs.gpus_per_node == request.gpus_per_node)
            & (jobs.gpu_type == gpu_type)
        )
    return bar_rows(jobs, barred & (jobs.state == JobState.PENDING))


def bar_rows(jobs: JobTable, barred: BoolColumn) -> JobTable:
    """The jobs, of whom these may have no one preempted for them, in addition to those that may not already."""
    if not barred.any():
        return jobs
    return jobs.with_columns(may_preempt=~barred & jobs.may_preempt if len(jobs.may_preempt) else ~barred)

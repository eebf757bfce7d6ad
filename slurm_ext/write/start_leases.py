"""Begin times with which tasks of inference services wait: leases, which end by themselves if nobody renews them.

A lease is known by itself, without sodad's memory and store: it is the begin time of a task of a service, not far ahead, at
second :data:`MARK_S` of a minute, where people and Slurm seldom set one. Any other begin time is its owner's. A begin time
for all waiting tasks of an array leaves them one record, one for a single task makes that a job of its own (Slurm 24.11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.job_changes import (
    MAX_REQUEUE_WAIT_S,
    MIN_RESTART_GAP_S,
    JobChange,
    lease_end_change,
)

MARK_S = 37
"""Second of a minute at which every lease ends."""
LONGER_S = 61.0
"""A lease is longer than asked for by less than this."""
LONGEST_LEASE_S = 1000.0
"""No lease ends later than so long from now."""
FIRST_WAIT_S = 61.0
"""A begin time at most so long after the submission is that of ``sodactl service start``, not the owner's."""


def lease_end_s(now_s: float, lease_s: float) -> int:
    """End of a lease that lasts at least ``lease_s`` from now, and less than a minute more."""
    earliest = math.ceil(now_s + lease_s)
    return earliest + (MARK_S - earliest) % 60


def is_lease(job: SlurmJob, now_s: float) -> bool:
    """Whether a waiting task waits with a lease that has not ended."""
    ahead_s = job.eligible_s - now_s
    return job.hints.service is not None and 0 < ahead_s <= LONGEST_LEASE_S and int(job.eligible_s) % 60 == MARK_S


def is_wait_of_slurm(job: SlurmJob) -> bool:
    """Whether the begin time of a task is the one with which Slurm requeued it, or with which its service was started."""
    longest_s = MAX_REQUEUE_WAIT_S if job.restarts else FIRST_WAIT_S
    return 0 < job.eligible_s - job.submit_s <= longest_s


def may_end_wait(job: SlurmJob, now_s: float) -> bool:
    """Whether the node would take the job so soon after its last run (:data:`.MIN_RESTART_GAP_S`)."""
    return not (job.restarts and -MIN_RESTART_GAP_S <= now_s - job.submit_s < MIN_RESTART_GAP_S)


def lease_release_changes(jobs: Sequence[SlurmJob], now_s: float, reason: str) -> list[JobChange]:
    """Ends every lease that Slurm shows: needs no daemon and no store. Lifts end apart (:func:`.release_changes`)."""
    leased = [job for job in jobs if job.state == "PENDING" and is_lease(job, now_s)]
    return [lease_end_change(job, reason, keeps_lift=True) for job in leased]


def array_tasks(text: str) -> tuple[int, ...]:
    """The tasks that a record stands for, ascending, as :attr:`.SlurmJob.array_task` names them; none of a job alone."""
    found: list[int] = []
    for piece in text.split(",") if text else ():
        first, _, last = piece.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)

"""How many of the waiting tasks of one array may start now: a pure decision, and the updates that follow from it.

Tasks that shall not start wait with a lease (:mod:`slurm_soda.slurm_ext.write.start_leases`). The waiting rest of an array
stays one record as long as none of its tasks, or all, may start; if some of them may, those become jobs of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from slurm_soda.daemon.services.service_tasks import WaitingRecord
from slurm_soda.policies.pipeline.actions import ScaleService
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.job_changes import MAX_REQUEUE_WAIT_S, JobChange, lease_change, lease_end_change
from slurm_soda.slurm_ext.write.start_leases import LONGER_S, lease_end_s, may_end_wait

_ORDER = {"free": 0, "leased": 1, "requeued": 2}
"""Who starts first of one GPU type: those that may already, so that nothing goes to and fro; those that just left, last."""


@dataclass(frozen=True, slots=True)
class StartStep:
    """One update of one record, or of one of its tasks."""

    job: SlurmJob
    task: int | None
    """``None``: all of its tasks."""
    lets_start: bool
    """Otherwise they get a lease."""
    change: JobChange


def plan_starts(
    scale: ScaleService,
    records: Sequence[WaitingRecord],
    running: int,
    *,
    now_s: float,
    lease_s: float,
    left: Collection[int] | None = None,
) -> list[StartStep]:
    """The updates that make as many instances run as ``scale`` says, none where all is so already.

    Args:
        scale: how many shall run.
        records: waiting tasks of the array; those of the owner's word count as running where they start by themselves.
        running: instances that run and do not leave.
        now_s: by Slurm's clock.
        lease_s: least length of a lease; one is renewed when less than half of that is left, or more than any may have:
            somebody has set the clock back.
        left: requeued jobs whose former run has certainly left its nodes; ``None``: nobody knows, and time tells.
    """
    steps: list[StartStep] = []
    for record, may in _shared_out(scale, records, running, now_s, left):
        steps += _steps(scale, record, may, now_s=now_s, lease_s=lease_s, left=left)
    return steps


def jobs_that_may_start(
    scale: ScaleService,
    records: Sequence[WaitingRecord],
    running: int,
    *,
    now_s: float,
    left: Collection[int] | None = None,
) -> set[int]:
    """Jobs of those waiting records whose tasks all may start and shall; arguments as of :func:`plan_starts`."""
    return {
        record.job.job_id
        for record, may in _shared_out(scale, records, running, now_s, left)
        if record.standing == "free" and may == record.count
    }


def _shared_out(
    scale: ScaleService,
    records: Sequence[WaitingRecord],
    running: int,
    now_s: float,
    left: Collection[int] | None,
) -> Iterator[tuple[WaitingRecord, int]]:
    """How many tasks of each record shall start."""
    wanted = scale.instances - running - sum(one.count for one in records if one.may_start)
    ours = [one for one in records if one.standing != "owners"]
    ours.sort(
        key=lambda one: (
            bool(scale.gpu_type and one.job.gpu_type and one.job.gpu_type != scale.gpu_type),
            *_turn(one, now_s, left),
            len(one.tasks) > 1,
            one.job.job_id,
        )
    )
    for record in ours:
        may = min(max(wanted, 0), record.count)
        wanted -= may
        yield record, may


def _turn(record: WaitingRecord, now_s: float, left: Collection[int] | None) -> tuple[bool, int]:
    """Sorts by who starts first. One that cannot be let start yet takes nobody's turn: its node may have been lost."""
    free = record.standing == "free"
    return not (free or _may_be_let(record.job, now_s, left)), _ORDER[record.standing]


def _may_be_let(job: SlurmJob, now_s: float, left: Collection[int] | None) -> bool:
    """Whether the end of its wait can be sent."""
    return _has_left(job, now_s, left) and may_end_wait(job, now_s)


def _has_left(job: SlurmJob, now_s: float, left: Collection[int] | None) -> bool:
    """Whether no former run of the task can be on its node any more; after the wait of Slurm's own none is."""
    return left is None or not job.restarts or job.job_id in left or now_s - job.submit_s > MAX_REQUEUE_WAIT_S


def _steps(
    scale: ScaleService,
    record: WaitingRecord,
    may: int,
    *,
    now_s: float,
    lease_s: float,
    left: Collection[int] | None,
) -> Iterator[StartStep]:
    """Of one record, of which so many tasks may start. The lease comes first: a task that is let start leaves the record."""
    job, reason = record.job, scale.reason
    if may == record.count:
        if record.standing != "free" and _may_be_let(job, now_s, left):
            yield StartStep(job, None, True, lease_end_change(job, f"starts now: {reason}", scale.id))
        return
    if record.standing != "leased" or not lease_s / 2.0 <= job.eligible_s - now_s <= lease_s + LONGER_S:
        until_s = lease_end_s(now_s, lease_s)
        yield StartStep(job, None, False, lease_change(job, until_s, f"shall not start yet: {reason}", scale.id))
    for task in record.tasks[:may]:
        change = lease_end_change(job, f"starts now: {reason}", f"{scale.id}:{task}", task)
        yield StartStep(job, task, True, change)

"""Putting aborted jobs back in line: what Slurm must be told so that a job which gave back what it borrowed is next.

Slurm makes a requeued job wait two minutes, and lists first the partition where it last ran, so that a job with several
would borrow again before it uses its own array's. Both are put right in one update, together with a place before the others
of its array. After so many aborts the job moves to where nothing can abort it: its array's own partition, or the site's own
where that could never hold it. Slurm refuses an update as a whole, so where it refuses the list of partitions the rest is
sent without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm_soda.daemon.pools.membership import PoolGroup, PoolMembership
from slurm_soda.daemon.pools.refused_updates import PARTITIONS_UNCHANGED
from slurm_soda.daemon.preemption.state_machine import waits_for_begin_time
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.job_changes import MAX_REQUEUE_WAIT_S, MIN_RESTART_GAP_S, JobChange
from slurm_soda.slurm_ext.write.site_factors import PRIORITY_SPACING


@dataclass(frozen=True, slots=True)
class AbortedJob:
    """A waiting job that was aborted, and what its return depends on."""

    record: SlurmJob
    membership: PoolMembership
    aborts: int
    site_factor: int | None
    """As Slurm tells it; ``None`` where it does not."""
    top: int
    """Largest priority among the other waiting jobs of its array."""
    ceiling: int
    """No job of its array gets a larger one."""
    home: str | None
    """The list of partitions where it is not aborted, once it borrows no more; ``None`` while nobody can tell."""
    refused: Callable[[str], bool] = field(default=lambda _: False)
    """Whether Slurm refused a list lately."""


def abort_limit_reached(aborts: int, max_aborts: int) -> bool:
    """Whether a job was aborted so often that nothing may abort it again."""
    return aborts >= max_aborts


def return_change(job: AbortedJob, max_aborts: int, now_s: float) -> JobChange | None:
    """What to send for one job now; ``None`` where Slurm shows it as it should be, or it is too early.

    A job waits :data:`~slurm_soda.slurm_ext.write.job_changes.MIN_RESTART_GAP_S` after its requeue in any case.
    """
    record = job.record
    new: dict[str, str] = {}
    old: dict[str, str] = {}
    lists, why = _wanted_partition_lists(job, max_aborts)
    if not lists:
        return None
    wanted = next((names for names in lists if not job.refused(names)), record.partition)
    if job.refused(lists[0]):
        why += f"; Slurm refused {lists[0]}"
    if wanted != record.partition:
        new["Partition"], old["Partition"] = wanted, record.partition
    if waits_after_slurm_requeue(record, now_s):
        if now_s < record.submit_s + MIN_RESTART_GAP_S:
            return None
        # A job before its begin time has no priority of ours; with this one it is before all others of its array.
        new |= {"SiteFactor": str(min(job.top + PRIORITY_SPACING, job.ceiling)), "StartTime": "now"}
        if job.site_factor is not None:
            old["SiteFactor"] = str(job.site_factor)
    if not new or ("Partition" not in new and job.refused(PARTITIONS_UNCHANGED)):
        return None
    return JobChange(record.job_id, "rewrite", new, old, f"{_aborts_text(job.aborts)} for jobs of another array; {why}")


def return_due_s(record: SlurmJob, now_s: float) -> float:
    """When an aborted job can be sent back at the earliest; infinite where there is nothing to wait for."""
    return record.submit_s + MIN_RESTART_GAP_S if waits_after_slurm_requeue(record, now_s) else float("inf")


def waits_after_slurm_requeue(record: SlurmJob, now_s: float) -> bool:
    """Whether a job waits because Slurm requeued it; a begin time that lies further off is its user's."""
    return waits_for_begin_time(record, now_s) and record.eligible_s - record.submit_s <= MAX_REQUEUE_WAIT_S


def can_be_updated_alone(record: SlurmJob) -> bool:
    """Whether an update hits this job alone: the id of a job array's last task is that of the whole array."""
    return not (record.array_task and record.job_id == record.array_job_id)


def _wanted_partition_lists(job: AbortedJob, max_aborts: int) -> tuple[list[str], str]:
    """Lists of partitions that the job shall have, the best first, and why; none while nobody can tell."""
    own, borrowing, base = job.membership.own, job.membership.borrowing, job.membership.group.base
    if not abort_limit_reached(job.aborts, max_aborts):
        names = ",".join(part.name for part in (*own, *borrowing))
        return [names], f"first in line again (aborted {job.aborts} of at most {max_aborts} times)"
    if job.home is None:
        return [], ""
    if job.home == base:
        return [base], f"after {job.aborts} aborts it runs beside the arrays: its own has no room"
    return [job.home, base], f"it borrows no more after {job.aborts} aborts"


def _aborts_text(aborts: int) -> str:
    return "it gave back what it had borrowed" if aborts == 1 else f"it gave back what it had borrowed {aborts} times"


def highest_waiting_priority(
    jobs: Mapping[int, SlurmJob], waiting: Mapping[int, PoolMembership], group: PoolGroup, ceiling: int
) -> int:
    """Largest priority among the waiting jobs of an array; never so large that nothing fits above it."""
    found = max((jobs[job_id].priority for job_id, member in waiting.items() if member.group == group), default=1)
    return min(found, ceiling - 2 * PRIORITY_SPACING)

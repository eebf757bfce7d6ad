"""Jobs that gave back what they had borrowed are next in line; jobs that wait in partitions which go are moved out of them.

Slurm makes a requeued job wait two minutes, and lists first the partition where it last ran, so that a job with several
would borrow again before it uses its own pool's. Both are put right together with a place before the others of its pool.
After so many aborts the job moves to where nothing can abort it: its pool's own partition, or the site's own where that
could never hold it. Slurm refuses an update as a whole, so where it refuses the list of partitions the rest is sent without.

``sodactl pools apply`` and ``revert`` move what waits. A run that ends later, because its cores or its node are gone, comes
back to the list that it had: partitions that take no more jobs, where it would wait until the pools are changed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.pipeline.actions import RouteJob
from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.pools.layout.routing import route_job
from slurm_soda.policies.pools.stages.in_force import SAME_LIST, PoolsInForce, WaitingPoolJob
from slurm_soda.policies.pools.stages.membership import PoolMembership, members_of
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState


@dataclass(frozen=True, slots=True)
class RequeuedBorrowersFirst:
    """Puts aborted jobs at the head of the order, and says where they and jobs of partitions that go may start."""

    name: str = "requeued borrowers first"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with a :class:`.RouteJob` for each job whose partitions or wait must change now."""
        pools, members = snapshot.pools, members_of(snapshot)
        if not pools.waiting:
            return plan
        if members is not None:
            first = _first_submitted(snapshot)
            plan = replace(plan, order=move_to_front(plan.order, first), notes=_rank_first(plan.notes, first))
        back, rerouted = [], []
        for job in pools.waiting:
            row = snapshot.jobs.row(job.job_id)
            code = int(snapshot.jobs.partition[row])
            listed, member = snapshot.partitions[code], None if members is None else members.by_partition[code]
            left = partitions_left(listed, pools.leaving)
            if not job.alone:
                continue
            if left != listed:
                rerouted.append(_out_of_leaving(job, listed, left, snapshot.now_s))
            elif job.aborts and member is not None:
                back.append(_back_in_line(job, listed, member, pools, snapshot.now_s))
        return replace(plan, actions=(*plan.actions, *(one for one in (*back, *rerouted) if one is not None)))


def move_to_front(order: IntColumn, first: IntColumn) -> IntColumn:
    """An order with some of its jobs moved to its head, in the order in which they are given."""
    head = first[np.isin(first, order)]
    return np.concatenate((head, order[~np.isin(order, head)])) if len(head) else order


def _rank_first(notes: JobNotes, first: IntColumn) -> JobNotes:
    """Notes in which some jobs are ranked before all others, in the order in which they are given."""
    first = first[np.isin(first, notes.job_id)]
    at = np.searchsorted(notes.job_id, first)
    position = np.where(notes.position >= 0, notes.position + len(first), notes.position)
    position[at] = np.arange(len(first))
    return replace(notes, position=position)


def _first_submitted(snapshot: ClusterSnapshot) -> IntColumn:
    """Waiting jobs that were aborted, first submitted first."""
    jobs = snapshot.jobs
    rows = [jobs.row(job.job_id) for job in snapshot.pools.waiting if job.aborts]
    waits = [row for row in rows if jobs.state[row] == JobState.PENDING]
    return jobs.job_id[sorted(waits, key=lambda row: (jobs.submit_s[row], jobs.job_id[row]))]


def partitions_left(partitions: str, leaving: Mapping[str, str]) -> str:
    """What a list of partitions shall be without those that go: the others, or else their base.

    Args:
        leaving: partitions that go, with their base.
    """
    names = partitions.split(",")
    staying = [name for name in names if name not in leaving]
    if len(staying) == len(names):
        return partitions
    return ",".join(staying or dict.fromkeys(base for name in names if (base := leaving[name]))) or partitions


def _out_of_leaving(job: WaitingPoolJob, listed: str, left: str, now_s: float) -> RouteJob | None:
    """One that was aborted need not wait out Slurm's two minutes either."""
    if left in job.refused:
        return None
    requeued = bool(job.aborts) and not np.isnan(job.startable_s)
    if requeued and now_s < job.startable_s:
        return None
    return RouteJob(job.job_id, "partitions in which it waits are taken back", left, listed, ends_wait=requeued)


def _back_in_line(
    job: WaitingPoolJob, listed: str, member: PoolMembership, pools: PoolsInForce, now_s: float
) -> RouteJob | None:
    """What must be changed of one aborted job; ``None`` where Slurm shows it as it should be, or it is too early."""
    lists, why = _wanted_lists(job, listed, member, pools)
    requeued = not np.isnan(job.startable_s)
    if not lists or (requeued and now_s < job.startable_s):
        return None
    wanted = next((names for names in lists if names not in job.refused), listed)
    if lists[0] in job.refused:
        why += f"; Slurm refused {lists[0]}"
    moves = wanted != listed
    if not (moves or requeued) or (not moves and SAME_LIST in job.refused):
        return None
    return RouteJob(
        job.job_id,
        f"{_aborts_text(job.aborts)} for jobs of another pool; {why}",
        partitions=wanted if moves else None,
        before=listed if moves else "",
        first_in=member.pool.name if requeued else None,
        ends_wait=requeued,
    )


def _wanted_lists(
    job: WaitingPoolJob, listed: str, member: PoolMembership, pools: PoolsInForce
) -> tuple[list[str], str]:
    """Lists of partitions that the job shall have, the best first, and why; none while that is not known."""
    own, borrowing, base = member.own, member.borrowing, member.pool.base
    if job.aborts < pools.max_aborts:
        names = ",".join(part.name for part in (*own, *borrowing))
        return [names], f"first in line again (aborted {job.aborts} of at most {pools.max_aborts} times)"
    # A list without a place to borrow is the user's choice, or what sodad changed it to before.
    unborrowed = _without_borrowing(job, pools, base) if borrowing else listed
    if unborrowed is None:
        return [], ""
    if unborrowed == base:
        return [base], f"after {job.aborts} aborts it runs outside the pools: its own has no capacity for it"
    return [unborrowed, base], f"it borrows no more after {job.aborts} aborts"


def _without_borrowing(job: WaitingPoolJob, pools: PoolsInForce, base: str) -> str | None:
    """Where nothing aborts the job, as ``job_submit.lua`` would route it; its base if no partition of its pool fits."""
    if not job.request_known:
        return None
    return (
        base if job.request is None else ",".join(route_job(pools.table, base, job.request, may_borrow=False)) or base
    )


def _aborts_text(aborts: int) -> str:
    return "it gave back what it had borrowed" if aborts == 1 else f"it gave back what it had borrowed {aborts} times"

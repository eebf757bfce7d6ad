"""From a plan's actions to changes of Slurm: only what differs, with its old value and reason.

This module alone makes changes; everybody else says what shall be by an action, or passes changes on. Waiting jobs that
must leave partitions of pools are moved outside of any plan, but recorded and sent like all others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from slurm_soda.policies.engine.lift_bounds import BEFORE_ALL, BEFORE_OVERDUE
from slurm_soda.policies.pipeline.actions import (
    JoinGpus,
    OrderJobs,
    ResizeRequest,
    RouteJob,
    preemption_id,
)
from slurm_soda.policies.plan import JobNotes, JobVerdict, Plan
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, BoolColumn, ClusterSnapshot, IntColumn, JobState, JobTable
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import waits_for_resources
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from slurm_soda.slurm_ext.sharing.guest_requests import gpus_of, request_fields
from slurm_soda.slurm_ext.write.lifts import PRIORITY_CEILING, PRIORITY_SPACING, WaitingQueue
from slurm_soda.slurm_ext.write.site_factors import compute_site_factors

JobChangeKind = Literal[
    "order", "signal", "requeue", "start-now", "rewrite", "share", "unshare", "lease", "release", "undo"
]

REQUEUE_IF_ENDED = {"Ended": "yes"}
"""Marks a requeue that shall hit a job which has ended after its checkpoint."""

DRAINED_RUN = "Restarts"
"""Of a requeue that belongs to no preemption: the restart count of the run that it ends."""

ARRAY_TASK = "ArrayTask"
"""Marks a change of one of the waiting tasks that a job stands for."""

MEMORY_FIELDS = ("MinMemoryCPU", "MinMemoryNode")
"""Either may stand in a change of a job's CPUs: one replaces the other."""

DEFAULT_ORDER_DEPTH = 1000

ChangeKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class JobChange:
    """One change of one job: fields in Slurm's words, before and after, and why."""

    job_id: int
    kind: JobChangeKind
    new: Mapping[str, str]
    old: Mapping[str, str]
    reason: str
    action: str = ""
    """Id of the action that it carries out; empty for one that comes from no plan."""

    @property
    def key(self) -> ChangeKey:
        """Tells a plan's changes apart: an action changes a job once."""
        return (self.action, self.job_id)


def request_changes(plan: Plan, snapshot: ClusterSnapshot) -> list[JobChange]:
    """What a plan changes of waiting jobs' requests: first where they may start, then their CPUs."""
    routes = [action for action in plan.actions if isinstance(action, RouteJob)]
    resizes = [action for action in plan.actions if isinstance(action, ResizeRequest)]
    return _route_changes(routes, plan, snapshot.jobs) + [resize_change(action) for action in resizes]


def _route_changes(routes: Sequence[RouteJob], plan: Plan, jobs: JobTable) -> list[JobChange]:
    changes = []
    tops: dict[str, int] = {}
    # The last one gets the place before all others, so those that are first in the plan come last.
    for action in reversed(routes):
        top = 0
        if action.first_in is not None:
            if action.first_in not in tops:
                tops[action.first_in] = _top_priority(action.first_in, plan, jobs)
            top = tops[action.first_in] = min(tops[action.first_in] + PRIORITY_SPACING, PRIORITY_CEILING)
        known = int(jobs.site_factor[jobs.row(action.job_id)]) if action.first_in is not None else UNKNOWN_SITE_FACTOR
        changes.append(route_change(action, top, None if known == UNKNOWN_SITE_FACTOR else known))
    return changes[::-1]


def _top_priority(pool: str, plan: Plan, jobs: JobTable) -> int:
    """Largest priority among the waiting jobs of a pool; never so large that nothing fits above it."""
    orders = [action for action in plan.actions if isinstance(action, OrderJobs) and action.pool == pool]
    ids = np.concatenate(
        [column for action in orders for column in (action.job_ids, action.others)] or [jobs.job_id[:0]]
    )
    found = int(jobs.priority[np.searchsorted(jobs.job_id, ids)].max()) if len(ids) else 1
    return min(found, PRIORITY_CEILING - 2 * PRIORITY_SPACING)


def route_change(action: RouteJob, site_factor: int = 0, known: int | None = None) -> JobChange:
    """Where a waiting job may start.

    Args:
        action: what shall be.
        site_factor: for a job that shall be first: a job before its begin time has no priority but this.
        known: its present one; ``None`` where Slurm does not tell.
    """
    new: dict[str, str] = {}
    old: dict[str, str] = {}
    if action.partitions is not None:
        new["Partition"], old["Partition"] = action.partitions, action.before
    if action.first_in is not None:
        new["SiteFactor"] = str(site_factor)
        if known is not None:
            old["SiteFactor"] = str(known)
    if action.ends_wait:
        new["StartTime"] = "now"
    return JobChange(action.job_id, "rewrite", new, old, action.reason, action.id)


def resize_change(action: ResizeRequest) -> JobChange:
    """A waiting job's CPUs, in the one form that Slurm follows (measured on 24.11, ``docs/policies/cpu-fit.md``).

    ``NumCPUs`` alone or ``CPUsPerTask`` alone changes nothing real; both together are followed upwards; downwards only with
    ``MinCPUsNode``, which otherwise stays at what was submitted and brings the old CPUs back. Memory by CPU would fall with
    the CPUs, so a smaller request asks for more with each. It stays by CPU: of memory by node the job's first step would
    take all, and srun refuses to start where the environment of the submission had SLURM_MEM_PER_CPU.
    """
    before = action.before
    memory_mib = action.memory_per_cpu_mib
    old_memory_mib = 0 if memory_mib is None else before.memory_per_cpu_mib
    new = _cpu_fields(action.cpus_per_task, action.cpus, action.least_cpus_per_node, memory_mib or 0)
    old = _cpu_fields(before.cpus_per_task, before.cpus, before.least_cpus_per_node, old_memory_mib)
    return JobChange(action.job_id, "rewrite", new, old, action.reason, action.id)


@lru_cache(maxsize=4096)
def _cpu_fields(cpus_per_task: int, cpus: int, per_node: int, memory_per_cpu_mib: int) -> Mapping[str, str]:
    """In Slurm's words; without memory where that is 0."""
    fields = {"CPUsPerTask": str(cpus_per_task), "NumCPUs": str(cpus), "MinCPUsNode": str(per_node)}
    if memory_per_cpu_mib:
        fields["MinMemoryCPU"] = str(memory_per_cpu_mib)
    return fields


def order_changes(
    plan: Plan,
    snapshot: ClusterSnapshot,
    *,
    depth: int = DEFAULT_ORDER_DEPTH,
    skipping_limit_s: float = math.inf,
    successors: Collection[int] = (),
) -> list[JobChange]:
    """SiteFactors with which Slurm keeps the plan's order until the next cycle, most urgent job first.

    Guests that wait come first, whose seats nobody else can take, then overdue jobs, tasks of services that go first, what
    starts now, whoever gets the places of preempted jobs, and the rest of each queue; everybody else has SiteFactor 0. A
    second run changes nothing.

    Args:
        plan: with its :class:`.OrderJobs`.
        snapshot: what it was made from.
        depth: at most so many jobs of a queue are lifted.
        skipping_limit_s: none is lifted past one that the policy ranks before it, or does not rank, if that one has waited
            so long and does not fit.
        successors: jobs for which others are being preempted. Their places are theirs, and those of the plan's own
            preemptions, so such a job skips all others; one that only waits for a job that ends does not. So does a job that
            was preempted, once it fits: those that are before it and do not fit would wait no less if it had run on.
    """
    changes: list[JobChange] = []
    starts = plan.starts
    awaiting = plan.notes.job_id[plan.notes.verdict == JobVerdict.WAIT_FOR_PREEMPTION]
    never = plan.notes.job_id[np.isin(plan.notes.verdict, (JobVerdict.TOO_LARGE, JobVerdict.JOIN))]
    served = np.array([*successors, *(one for action in plan.preempts for one in action.for_jobs)], dtype=np.int64)
    returning = snapshot.jobs.job_id[(snapshot.jobs.state == JobState.PENDING) & (snapshot.jobs.preemptions > 0)]
    skipping = np.concatenate((served, returning))
    for action in plan.actions:
        if not isinstance(action, OrderJobs):
            continue
        ids = action.job_ids
        hopeless = np.isin(ids, never)
        first = np.isin(ids, starts) & ~hopeless
        then = ~first & (np.isin(ids, awaiting) | (np.arange(len(ids)) < action.reserving))
        turn = _turns(snapshot.jobs, ids, first, then, hopeless)
        sooner, later = np.count_nonzero(turn < _STARTS), np.count_nonzero(turn < _WAITS)
        by_turn, waits = ids[np.argsort(turn, kind="stable")], turn == _WAITS
        tasks, guests = action.first[~np.isin(action.first, never)], action.guests
        leading = np.concatenate((by_turn[:sooner], tasks, by_turn[sooner:later]))
        ordered = np.concatenate((leading, ids[waits]))
        firm = np.concatenate((starts, awaiting, ids[turn == _KEEPS_PLACES], tasks))
        skippable, skips = ~np.isin(ordered, firm), np.isin(ordered, skipping) | np.isin(ordered, tasks)
        rank = np.where(skips & ~skippable, BEFORE_ALL, _ranks(plan.notes, ordered))
        queue = WaitingQueue(
            leading=np.concatenate((guests, leading)),
            waiting=ids[waits],
            unranked=action.unranked,
            never=np.concatenate((ids[hopeless], action.first[np.isin(action.first, never)])),
            others=action.others,
            rank=np.concatenate((np.full(len(guests), BEFORE_OVERDUE), rank)),
            skippable=np.concatenate((np.zeros(len(guests), dtype=np.bool_), skippable)),
            fence=action.fence,
        )
        wanted = compute_site_factors(queue, snapshot, depth=depth, skipping_limit_s=skipping_limit_s)
        changes += _lift_changes(action, queue, wanted, {*starts.tolist(), *guests.tolist()}, snapshot.jobs)
    return changes


_SERVED, _MAKES_WAY, _KEEPS_PLACES, _STARTS, _AWAITS, _WAITS, _NEVER = range(7)


def _turns(jobs: JobTable, ids: IntColumn, first: BoolColumn, then: BoolColumn, hopeless: BoolColumn) -> IntColumn:
    """In which turn Slurm shall try each job.

    Overdue jobs go before all others, also those that find no places: so Slurm reserves nodes for them. Before these go jobs
    alone that start now and will make way for them; whatever else starts is left to backfill, which knows the nodes.
    """
    rows = np.searchsorted(jobs.job_id, ids)
    turn = np.select([hopeless, first, then], [_NEVER, _STARTS, _AWAITS], _WAITS)
    if not len(jobs.overdue) or not jobs.overdue[rows].any():
        return turn
    late = jobs.overdue[rows] & ~hopeless
    keeps = late & (turn == _WAITS)
    may_preempt = jobs.may_preempt[rows] if len(jobs.may_preempt) else np.ones(len(rows), dtype=np.bool_)
    makes_way = first & ~late & jobs.preemptible[rows] & (jobs.gpus[rows] > 0)
    makes_way &= bool((may_preempt & (jobs.gpus[rows] > 0))[keeps].all())
    turn[makes_way] = _MAKES_WAY
    turn[keeps] = _KEEPS_PLACES
    turn[late & (first | then)] = _SERVED
    return turn


def _ranks(notes: JobNotes, ids: IntColumn) -> IntColumn:
    """The policy's ranks of jobs; without any, the jobs are ranked as they are listed."""
    return notes.position[np.searchsorted(notes.job_id, ids)] if len(notes.position) else np.arange(len(ids))


def _lift_changes(
    action: OrderJobs, queue: WaitingQueue, wanted: Mapping[int, int], starts: set[int], jobs: JobTable
) -> list[JobChange]:
    ranked = np.concatenate((queue.leading, queue.waiting, queue.never)).tolist()
    rank = {job_id: place for place, job_id in enumerate(ranked)}
    changes, first = [], set(action.first.tolist())
    for job_id in sorted(wanted, key=lambda one: rank.get(one, len(ranked))):
        if not wanted[job_id]:
            reason = f"{action.reason}: an earlier lift is withdrawn, its own priority will do"
        else:
            late = bool(len(jobs.overdue)) and bool(jobs.overdue[jobs.row(job_id)])
            word = ("is overdue and " if late else "") + ("starts now" if job_id in starts else "waits")
            word = "goes first for its service" if job_id in first else word
            reason = f"{action.reason}: {word}, position {rank[job_id] + 1} of {len(ranked)}"
        old = int(jobs.site_factor[jobs.row(job_id)])
        new = {"SiteFactor": str(wanted[job_id])}
        changes.append(JobChange(job_id, "order", new, {"SiteFactor": str(old)}, reason, action.id))
    return changes


def join_change(action: JoinGpus, job: SlurmJob, gres: str) -> JobChange:
    """One update that makes a waiting job a guest and gives it its record.

    ``--gpus`` on one node stays a request for the whole job, so that undoing it leaves no trace; every other way of asking
    becomes one for each node. Other generic resources stay as they are asked for.

    Args:
        action: where it goes.
        job: as it waits, by :func:`.why_not_guest` without an obstacle.
        gres: the generic resource of guests.

    Raises:
        SlurmReplyError: its request is longer than a record may be.
    """
    asked = request_fields(job)
    ways = [name for name, text in asked.items() if gpus_of(text)]
    into = "TresPerJob" if len(action.nodes) == 1 and ways == ["TresPerJob"] else "TresPerNode"
    kind = f"gpu:{job.gpu_type}" if job.gpu_type else "gpu"
    pieces = [f"gres/{gres}:g{index}:1" for index in action.gpus]
    pieces += [f"gres/{kind}:{action.own}"] if action.own else []
    pieces += [piece for piece in asked[into].split(",") if piece and not gpus_of(piece)]
    new = {**dict.fromkeys(ways, ""), into: ",".join(pieces), "ReqNodeList": ",".join(action.nodes)}
    old = {name: asked.get(name, job.req_node_names) for name in new}
    record = GuestRecord(action.hosts, action.gpus, action.own, action.sub_batch, action.steps, undo=dict(old))
    new["Extra"], old["Extra"] = record.encode(), ""
    return JobChange(action.job_id, "share", new, old, action.reason, action.id)


def split_change(action: JoinGpus, job: SlurmJob) -> JobChange:
    """Makes the first of an array's waiting tasks a job of its own, which can be made a guest then.

    Slurm splits an array where one of its tasks is changed (24.11). Nothing of the task is: it begins without a lift.
    """
    first = re.match("[0-9]+", job.array_task)
    task = first[0] if first else ""
    reason = f"task {task} becomes a job of its own: {action.reason}"
    return JobChange(job.job_id, "order", {ARRAY_TASK: task, "SiteFactor": "0"}, {"SiteFactor": "0"}, reason, action.id)


def unshare_change(job_id: int, record: GuestRecord, reason: str) -> JobChange:
    """One update that gives a waiting guest the request of its record again, and takes the record away."""
    return restore_change(job_id, record.undo, {"Extra": record.encode()}, reason)


def restore_change(job_id: int, undo: Mapping[str, str], old: Mapping[str, str], reason: str) -> JobChange:
    """One update that takes the record of a waiting guest away and restores these fields.

    It goes as root or SlurmUser, so in one piece, past the guard of job_submit.lua: an operator's change of GRES sets no
    exemption from limits of accounting (measured on 24.11, ``docs/operations.md``), unlike one of CPUs.

    Args:
        job_id: the guest.
        undo: the fields.
        old: what is known of the present ones.
        reason: why.
    """
    return JobChange(job_id, "unshare", {**undo, "Extra": ""}, old, reason)


def start_now_change(job_id: int, reason: str, *, keeps_lift: bool = True) -> JobChange:
    """Clears the two minutes that Slurm makes a preempted job wait; only for a job that shows PENDING.

    Without ``keeps_lift`` a lift from before its last start ends with the wait: Slurm would start the job before those that
    the plan ranks before it.
    """
    new = {"StartTime": "now"} if keeps_lift else {"StartTime": "now", "SiteFactor": "0"}
    return JobChange(job_id, "start-now", new, {}, reason, preemption_id(job_id))


def signal_change(job_id: int, name: str, reason: str) -> JobChange:
    """Asks a job for its checkpoint before it is preempted; ``name`` without SIG."""
    return JobChange(job_id, "signal", {"Signal": name}, {}, reason, preemption_id(job_id))


def requeue_change(job_id: int, reason: str, *, ended: bool = False) -> JobChange:
    """Puts a running job back into the queue; with ``ended`` also one that has ended after its checkpoint."""
    return JobChange(job_id, "requeue", REQUEUE_IF_ENDED if ended else {}, {}, reason, preemption_id(job_id))


def lease_change(job: SlurmJob, until_s: int, reason: str, action: str = "") -> JobChange:
    """A task, or all waiting tasks of one record, shall not start before this second.

    It does not go first then: a lift, which Slurm keeps over a requeue, it would not tell until the lease ends.
    """
    new = {"StartTime": f"uts{until_s}", "SiteFactor": "0"}
    return JobChange(job.job_id, "lease", new, {"StartTime": "now"}, reason, action)


def lease_end_change(
    job: SlurmJob, reason: str, action: str = "", task: int | None = None, *, keeps_lift: bool = False
) -> JobChange:
    """A task may start now: all of a record, or one of them, which becomes a job of its own.

    Without ``keeps_lift`` a lift of earlier ends: Slurm would start the task before those that the plan ranks before it.
    """
    part = {} if task is None else {ARRAY_TASK: str(task)}
    # Slurm tells no begin time of a task that is up against its array's own limit.
    old = {} if math.isnan(job.eligible_s) else {"StartTime": f"uts{int(job.eligible_s)}"}
    lift = {} if keeps_lift else {"SiteFactor": "0"}
    return JobChange(job.job_id, "lease", {**part, "StartTime": "now", **lift}, old, reason, action)


def drained_change(job_id: int, restarts: int, reason: str, action: str) -> JobChange:
    """Puts an instance of a service, which answers no more queries in this run, back into the queue."""
    return JobChange(job_id, "requeue", {DRAINED_RUN: str(restarts)}, {}, reason, action)


def lift_end_change(job_id: int, reason: str) -> JobChange:
    """Ends the lift of a job whose SiteFactor Slurm does not tell now."""
    return JobChange(job_id, "release", {"SiteFactor": "0"}, {}, reason)


def known_change(
    job_id: int, kind: JobChangeKind, new: Mapping[str, str], old: Mapping[str, str], reason: str
) -> JobChange:
    """A change that was recorded before: as it was, or the other way round to take it back."""
    return JobChange(job_id, kind, new, old, reason)


MIN_RESTART_GAP_S = 2.0
"""Least time between a requeue and a new start. A node turns away credentials that are not at least a second younger than
the end of the job's last run there, both in whole seconds ("Job credential revoked"), and Slurm then fails the job. The
wait that Slurm itself imposes, the lifetime of a credential and a second, is the long way around this."""

MAX_REQUEUE_WAIT_S = 180.0
"""Slurm lets a requeued job wait about 121 s from the requeue, its new submit time; a later begin time is the user's own."""


def release_changes(jobs: Sequence[SlurmJob], site_factors: Mapping[int, int]) -> list[JobChange]:
    """Everything of ours that Slurm still shows, taken back: needs no daemon and no store.

    SiteFactors go to 0, also where Slurm does not tell them (held jobs, jobs before their begin time). We never hold a job,
    so no hold is touched; nor is Slurm's wait after a requeue ended, as nobody here knows whether the former run has left.

    Args:
        jobs: all jobs.
        site_factors: as :meth:`SlurmClient.site_factors` gives them.
    """
    changes = []
    for job in jobs:
        if job.state != "PENDING":
            continue
        factor = site_factors.get(job.job_id, 0 if waits_for_resources(job.reason) else None)
        if factor != 0:
            old = {} if factor is None else {"SiteFactor": str(factor)}
            changes.append(
                JobChange(job.job_id, "release", {"SiteFactor": "0"}, old, "release-all: Slurm's own order again")
            )
    return changes

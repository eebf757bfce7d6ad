"""Which SiteFactors a plan's order comes to, queue by queue: pure, so that a simulation has the same as Slurm."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.lift_bounds import BEFORE_ALL, BEFORE_OVERDUE
from slurm_soda.policies.pipeline.actions import OrderJobs
from slurm_soda.policies.plan import JobNotes, JobVerdict, Plan
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, JobTable
from slurm_soda.slurm_ext.write.lifts import WaitingQueue
from slurm_soda.slurm_ext.write.site_factors import compute_site_factors

DEFAULT_ORDER_DEPTH = 1000


class QueueOrder(NamedTuple):
    """What one action about the order comes to."""

    action: OrderJobs
    queue: WaitingQueue
    wanted: Mapping[int, int]
    """SiteFactors by job id, only of jobs that need another one than they have."""


def order_queues(
    plan: Plan,
    snapshot: ClusterSnapshot,
    *,
    depth: int = DEFAULT_ORDER_DEPTH,
    skipping_limit_s: float = math.inf,
    successors: Collection[int] = (),
) -> Iterator[QueueOrder]:
    """The order of each queue of a plan; arguments are those of :func:`.job_changes.order_changes`."""
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
        unfit, guests = np.isin(action.first, never), action.guests
        tasks = action.first[~unfit]
        leading = np.concatenate((by_turn[:sooner], tasks, by_turn[sooner:later]))
        ordered = np.concatenate((leading, ids[waits]))
        firm = np.concatenate((starts, awaiting, ids[turn == _KEEPS_PLACES], tasks))
        skippable, skips = ~np.isin(ordered, firm), np.isin(ordered, skipping) | np.isin(ordered, tasks)
        # Who would make way does so for those alone that the policy ranks: they are passed, and nobody else.
        ranks = np.where(np.isin(ordered, plan.skips) & ~skippable, 0, _ranks(plan.notes, ordered))
        rank = np.where(skips & ~skippable, BEFORE_ALL, ranks)
        queue = WaitingQueue(
            leading=np.concatenate((guests, leading)),
            waiting=ids[waits],
            unranked=action.unranked,
            never=np.concatenate((ids[hopeless], action.first[unfit])),
            others=action.others,
            rank=np.concatenate((np.full(len(guests), BEFORE_OVERDUE), rank)),
            skippable=np.concatenate((np.zeros(len(guests), dtype=np.bool_), skippable)),
            fence=action.fence,
        )
        wanted = compute_site_factors(queue, snapshot, depth=depth, skipping_limit_s=skipping_limit_s)
        yield QueueOrder(action, queue, wanted)


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

"""Which SiteFactors keep a plan's order in Slurm until the next cycle: as few as possible, none negative, none high.

Slurm tries pending jobs by priority, larger first, ties by time of submission, which a requeue moves, then by id;
priority/multifactor computes ``Priority = natural + SiteFactor``. A job whose natural priority gives it its place already
needs nothing, and nobody is pushed down: a job that shall pass others is *lifted* to just above them, everybody else has
SiteFactor 0.

**Who must stand before whom.** A job that starts now, or whose places are being vacated for it, goes before every job behind
it in the plan that may compete for its nodes. A job that waits goes before those behind it in the plan that ask for at least
as much of the same nodes: what does not suffice for it does not suffice for them either. So when the main loop stops at a
lifted job that does not fit, it would have stopped at the job that was passed: a lift never stops a partition that would
have gone on, also where nobody takes it back.

**Whom nobody passes.** What Slurm reserves for a job stays reserved if no job is lifted past it. That holds for

- a job that does not fit, against every job that the policy ranks behind it: to start that one first is to *skip* it, not
  to let a better one *pass*. So jobs without a rank are not passed either. Who gets the places of preempted jobs may skip.
- a job that has waited for longer than a limit, whatever the policy says, and one that was submitted with a smaller
  ``--nice``.

**Least lifts.** These pairs are a partial order along the plan. From the last job to the first, each gets the least priority
that is above those that it passes, but not less than its natural one; a job with a bound passes those below it. That is
the least solution: without bounds, a job that it lifts is lifted in every solution that pushes nobody down, and at least as
high. A job that waits may be lifted past another before it only if that one is lifted as well; so bounds are found first,
from the first job to the last. For a job that starts they are the lifts of those that wait, which are known by then.

Cost: O(n log n) for n waiting jobs and each group of nodes in which their lists of partitions overlap, of which there are as
many as the site's partitions make; then O(d k) in numpy for the d jobs that may be lifted and the k that they are compared
with. d is bounded by the depth, and k by d and the depth for each list of partitions, n at most: not by the pairs of lists.
"""

from __future__ import annotations

import math

import numpy as np

from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, ClusterSnapshot
from slurm_soda.slurm_ext.write.least_lifts import find_least_lifts
from slurm_soda.slurm_ext.write.lifts import LiftLimits, LiftWalk, WaitingQueue

SITE_FACTOR_LIMIT = 2_147_483_645
"""Largest magnitude that scontrol takes; a larger one is ignored with exit status 1."""


def compute_site_factors(
    queue: WaitingQueue,
    snapshot: ClusterSnapshot,
    *,
    depth: int,
    skipping_limit_s: float = math.inf,
) -> dict[int, int]:
    """New SiteFactors by job id, only for jobs that need another one than they have.

    Args:
        queue: whom to order. Jobs whose present SiteFactor is unknown are passed over.
        snapshot: the jobs' requests and priorities, and the nodes. No job is lifted past one that is overdue, unless that
            one leads.
        depth: at most so many are lifted, and so many of each partition, by natural priority, are passed: those that Slurm
            looks at before the next cycle.
        skipping_limit_s: no job is lifted past one that the plan ranks before it, or that the policy does not rank, if that
            one has waited so long and does not fit.
    """
    jobs = snapshot.jobs
    walk = LiftWalk.of(queue, snapshot, LiftLimits(depth, skipping_limit_s))
    wanted = {} if walk is None else find_least_lifts(walk)
    ids = np.concatenate((queue.leading, queue.waiting, queue.unranked, queue.never, queue.others))
    rows = np.searchsorted(jobs.job_id, ids)
    changes: dict[int, int] = {}
    for job_id, row, factor, priority in zip(
        ids.tolist(), rows.tolist(), jobs.site_factor[rows].tolist(), jobs.priority[rows].tolist(), strict=True
    ):
        new = wanted[row] - (priority - factor) if row in wanted else 0
        if factor not in (new, UNKNOWN_SITE_FACTOR):
            changes[job_id] = min(new, SITE_FACTOR_LIMIT)
    return changes

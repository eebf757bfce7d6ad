"""Which jobs are overdue, and in which order.

A job is *overdue* once it has waited for the passing limit W, and then until its sure run is over or it has ended. So what
was won by waiting is not lost at once, and overdue jobs do not preempt each other again and again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState

DEFAULT_PASSING_LIMIT_S = 86_400.0
"""W for sodad and for simulations (docs/policies/waiting.md says why)."""

_SURE_RUN_RATIO, _SURE_RUN_S = 1 / 24, 600.0

ROUNDING_S = 1e-3
"""By so much a sum of times may miss the limit that it reaches on paper."""


def find_sure_run_s(passing_limit_s: float) -> float:
    """For so long a job that started overdue is not preempted: an hour for a day of waiting, and never less than 10 minutes.

    That is long against a restart, however short the limit is, and short enough not to keep others waiting
    (docs/policies/waiting.md).
    """
    return max(_SURE_RUN_RATIO * passing_limit_s, _SURE_RUN_S)


def mark_overdue(snapshot: ClusterSnapshot, passing_limit_s: float) -> ClusterSnapshot:
    """The snapshot under this limit, infinite for none, with its overdue jobs.

    A waiting job with a larger ``--nice`` than another one is not overdue: who steps back for others is not put in front of
    them. Where all waiting jobs have one that is above 0, the least of them counts as 0.
    """
    jobs = snapshot.jobs
    long = jobs.waited_s >= passing_limit_s - ROUNDING_S
    if not (len(jobs.overdue) or long.any()):
        return replace(snapshot, passing_limit_s=passing_limit_s)
    waits = jobs.state == JobState.PENDING
    if len(jobs.nice) and waits.any():
        long = long & (~waits | (jobs.nice <= max(int(jobs.nice[waits].min()), 0)))
    ran_s = snapshot.now_s - jobs.start_s
    runs = (jobs.state == JobState.RUNNING) & (ran_s < find_sure_run_s(passing_limit_s) - ROUNDING_S)
    return replace(snapshot, jobs=jobs.with_columns(overdue=long & (waits | runs)), passing_limit_s=passing_limit_s)


def order_overdue(snapshot: ClusterSnapshot) -> IntColumn:
    """Rows of waiting jobs that are overdue, the longest wait first, ties by submission, then job id."""
    jobs = snapshot.jobs
    if not len(jobs.overdue):
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(jobs.overdue & (jobs.state == JobState.PENDING))
    # Of a wait only its beginning counts, rounded: two jobs that began to wait together must not change places.
    since_s = np.round(snapshot.now_s - jobs.waited_s[rows], 3)
    order: IntColumn = rows[np.lexsort((rows, jobs.submit_s[rows], since_s))]
    return order


def find_protected(snapshot: ClusterSnapshot) -> BoolColumn:
    """Running jobs that nobody preempts, as they started overdue and have not run for the limit."""
    jobs = snapshot.jobs
    if not len(jobs.overdue):
        return np.zeros(len(jobs), dtype=np.bool_)
    flags: BoolColumn = jobs.overdue & (jobs.state == JobState.RUNNING)
    return flags


def find_next_overdue_s(snapshot: ClusterSnapshot) -> float:
    """When the next waiting job becomes overdue, or while one is, the next that runs ceases to be; infinite for never."""
    jobs, limit_s = snapshot.jobs, snapshot.passing_limit_s
    if limit_s == float("inf"):
        return limit_s
    waits = jobs.state == JobState.PENDING
    overdue = jobs.overdue if len(jobs.overdue) else np.zeros(len(jobs), dtype=np.bool_)
    later: FloatColumn = snapshot.now_s + limit_s - jobs.waited_s[waits & ~overdue]
    if (waits & overdue).any():
        later = np.concatenate((later, jobs.start_s[find_protected(snapshot)] + find_sure_run_s(limit_s)))
    return float(later[later > snapshot.now_s].min(initial=np.inf))

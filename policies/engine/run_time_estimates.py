"""When jobs are expected to end, as far as somebody said so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, JobState, JobTable

LIMIT, PREDICTED = "limit", "predicted"
ESTIMATES = (LIMIT, PREDICTED)
"""What counts as a job's run time: its time limit, as in Slurm, or the prediction of its remaining run time."""

UNKNOWN_RUN_S = 365 * 86_400.0
"""Run time of a job of which nobody knows anything: a year, as in Slurm's sched/backfill."""

LEAST_RUN_S = 1e-3
"""A job of which is said that nothing is left holds its places for a moment all the same."""

FIRST_GUESS_S = 600.0
"""What a job is taken to run for of which nobody knows anything: our choice. With less, jobs are stopped more often for each
other; with more, short ones wait longer for those that turn out to be long.

Ranks of distributions (``gittins_rank``), and predictions while nothing was learned, take one that is even in the logarithm
instead. Where nobody predicts it does not serve: its median, an hour and a half, and what it expects of a job that outlived
that, depend most on the year at which it ends."""


def find_unknown(jobs: JobTable) -> BoolColumn:
    """Jobs whose run time nobody knows, or which have outlived what was said."""
    unknown: BoolColumn = ~np.isfinite(jobs.remaining_s) | ((jobs.remaining_s <= 0.0) & (jobs.executed_s > 0.0))
    return unknown


def expect_remaining_s(jobs: JobTable) -> FloatColumn:
    """Run time left of each job, finite; where :func:`find_unknown` says that nobody knows it, from what the job ran for.

    Such a job is taken to run for :data:`FIRST_GUESS_S`, and each time that it has outlived that, for twice as long: the
    median of what runs for so long where no run time is typical. So it ranks by attained service, and may have to leave for
    others of its kind each time that this has doubled, not at every instant.
    """
    _, doublings = np.frexp(jobs.executed_s / FIRST_GUESS_S)
    total_s = np.ldexp(FIRST_GUESS_S, np.maximum(doublings, 0))
    remaining_s: FloatColumn = np.where(find_unknown(jobs), total_s - jobs.executed_s, jobs.remaining_s)
    return remaining_s


def find_next_guess_s(snapshot: ClusterSnapshot, verdict: NDArray[np.int8]) -> float:
    """When a job of unknown run time first outlives what it was taken to run for, once a plan with these verdicts is
    carried out; infinite where no GPU job waits.
    """
    jobs = snapshot.jobs
    on_gpus = (jobs.gpus > 0) & find_unknown(jobs)
    runs = on_gpus & (
        (verdict == JobVerdict.START) | ((jobs.state == JobState.RUNNING) & (verdict != JobVerdict.PREEMPT))
    )
    waits = np.isin(verdict, (JobVerdict.WAIT, JobVerdict.WAIT_FOR_PREEMPTION, JobVerdict.PREEMPT)) & (jobs.gpus > 0)
    if not runs.any() or not waits.any():
        return float("inf")
    return snapshot.now_s + float(expect_remaining_s(jobs)[runs].min())


def estimate_runs_s(snapshot: ClusterSnapshot, estimate: str) -> FloatColumn:
    """How long each job would run if it started now, one value a row, finite and at least :data:`LEAST_RUN_S`.

    ``limit``: its time limit; ``predicted``: the predicted rest of its run time, at most its time limit. Each stands in
    for the other where that is unknown, and :data:`UNKNOWN_RUN_S` where both are.
    """
    jobs = snapshot.jobs
    limit = np.where(np.isfinite(jobs.time_limit_s), jobs.time_limit_s, np.nan)
    known = np.where(np.isfinite(jobs.remaining_s), jobs.remaining_s, np.nan)
    limited = np.where(np.isnan(limit), known, limit) if estimate == LIMIT else np.fmin(known, limit)
    runs: FloatColumn = np.where(np.isnan(limited), UNKNOWN_RUN_S, np.maximum(limited, LEAST_RUN_S))
    return runs


def estimate_ends_s(snapshot: ClusterSnapshot, estimate: str) -> FloatColumn:
    """When each job that holds resources is expected to give them back, one value a row, never before now.

    Running jobs by the rules of :func:`estimate_runs_s`, a time limit counting from the start of the present run; a job
    that outlives its estimate ends now. Completing jobs end now. Suspended ones after :data:`UNKNOWN_RUN_S`. Rows of
    waiting jobs mean nothing.
    """
    jobs, now_s = snapshot.jobs, snapshot.now_s
    start = np.where(np.isnan(jobs.start_s), now_s, jobs.start_s)
    limit = np.where(np.isfinite(jobs.time_limit_s), start + jobs.time_limit_s, np.nan)
    known = np.where(np.isfinite(jobs.remaining_s), now_s + jobs.remaining_s, np.nan)
    limited = np.where(np.isnan(limit), known, limit) if estimate == LIMIT else np.fmin(known, limit)
    ends = np.maximum(np.where(np.isnan(limited), start + UNKNOWN_RUN_S, limited), now_s)
    ends = np.where(jobs.state == JobState.COMPLETING, now_s, ends)
    return np.where(jobs.state == JobState.SUSPENDED, now_s + UNKNOWN_RUN_S, ends)

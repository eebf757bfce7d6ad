"""When jobs are expected to end, as far as somebody said so."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, JobState

LIMIT, PREDICTED = "limit", "predicted"
ESTIMATES = (LIMIT, PREDICTED)
"""What counts as a job's run time: its time limit, as in Slurm, or the prediction of its remaining run time."""

UNKNOWN_RUN_S = 365 * 86_400.0
"""Run time of a job of which nobody knows anything: a year, as in Slurm's sched/backfill."""


def estimate_runs_s(snapshot: ClusterSnapshot, estimate: str) -> FloatColumn:
    """How long each job would run if it started now, one value a row, finite and positive.

    ``limit``: its time limit; ``predicted``: the predicted rest of its run time, at most its time limit. Each stands in
    for the other where that is unknown, and :data:`UNKNOWN_RUN_S` where both are.
    """
    jobs = snapshot.jobs
    limit = np.where(np.isfinite(jobs.time_limit_s), jobs.time_limit_s, np.nan)
    known = np.where(np.isfinite(jobs.remaining_s), np.maximum(jobs.remaining_s, 0.0), np.nan)
    limited = np.where(np.isnan(limit), known, limit) if estimate == LIMIT else np.fmin(known, limit)
    runs: FloatColumn = np.where(np.isnan(limited), UNKNOWN_RUN_S, limited)
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

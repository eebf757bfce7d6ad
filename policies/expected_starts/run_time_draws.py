"""Run times left, drawn at random from what was learned: one possible future a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS, EDGES_S, STEP_RATIO
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, JobState, JobTable

LEAST_LEFT_S = 1.0
"""A job that runs has not ended."""

_LOG_EDGES: FloatColumn = np.log(np.maximum(EDGES_S, 1.0 / STEP_RATIO))
_UNIFORM: FloatColumn = np.full(BINS, 1.0 / BINS)


def draw_remaining_s(snapshot: ClusterSnapshot, draws: int, seed: int) -> FloatColumn:
    """Run times left, shape (draws, jobs); the same arguments give the same numbers, to the bit.

    A job with a learned distribution takes one of the run times that are still possible for it; one without takes its
    ``remaining_s``, which somebody knows; one of which nobody knows anything any run time, spread evenly in the logarithm.
    None takes more than its time limit leaves. A completing job is as good as gone.

    Complexity: O(draws x jobs), and O(bins) for each kind of job.
    """
    jobs = snapshot.jobs
    chance = np.random.default_rng(seed).random((draws, len(jobs)))
    kind, worked_s = _kinds(snapshot.run_times, jobs)
    left_s = np.broadcast_to(jobs.remaining_s, chance.shape).copy()
    for number in np.unique(kind[kind >= -1]).tolist():
        rows = np.flatnonzero(kind == number)
        probability = _UNIFORM if number < 0 else snapshot.run_times.probability[number]
        left_s[:, rows] = _draw_left_s(probability, worked_s[rows], chance[:, rows])
    left_s[:, jobs.state == JobState.COMPLETING] = LEAST_LEFT_S
    ran_s = np.where(np.isnan(jobs.start_s), 0.0, snapshot.now_s - jobs.start_s)
    capped: FloatColumn = np.clip(left_s, LEAST_LEFT_S, np.maximum(jobs.time_limit_s - ran_s, LEAST_LEFT_S))
    return capped


_KNOWN = -2


def _kinds(expected: ExpectedRunTimes, jobs: JobTable) -> tuple[NDArray[np.int64], FloatColumn]:
    """Row of each job's distribution and what it has worked; -1: nothing is known of it, ``_KNOWN``: its time left is."""
    unknown = np.where(np.isnan(jobs.remaining_s), -1, _KNOWN)
    if not len(expected.kind):
        return unknown, jobs.executed_s
    learned = expected.kind >= 0
    return np.where(learned, expected.kind, unknown), np.where(learned, expected.worked_s, jobs.executed_s)


def _draw_left_s(probability: FloatColumn, worked_s: FloatColumn, chance: FloatColumn) -> FloatColumn:
    """By the inverse of the distribution of whole run times, above what was worked; inside a bin even in the logarithm."""
    past = np.concatenate(([0.0], np.cumsum(probability)))
    past /= past[-1]
    worked_s = np.maximum(worked_s, 0.0)
    before = np.interp(np.log(np.maximum(worked_s, EDGES_S[1] / STEP_RATIO)), _LOG_EDGES, past)
    whole_s = np.exp(np.interp(before + (1.0 - before) * chance, past, _LOG_EDGES))
    # Whoever ran for a year may well run for another one.
    return np.where(worked_s >= EDGES_S[-1], worked_s * chance, whole_s - worked_s)

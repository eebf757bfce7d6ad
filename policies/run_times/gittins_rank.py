"""Gittins' rank of remaining run times, from learned distributions: expected work per expected completion.

For a job that has run for a, with run time X and a cost c of starting it now,

    rank(a, c) = min over D > 0 of (c + E[min(X - a, D) | X > a]) / P(X - a <= D | X > a)

The job of least rank goes first: with one server and Poisson arrivals that minimises the mean time in the system (Gittins,
1989; for several servers and high load: Scully, Grosof and Harchol-Balter, 2020). Two ends of what may be known are
well-known orders: where X is known the rank is the remaining time (SRPT); where X is spread evenly in its logarithm, it
grows with a, and the order is that of least attained service.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS, EDGES_S, MIDDLES_S, locate_in_bins
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn

_UNIFORM: FloatColumn = np.full(BINS, 1.0 / BINS)
"""Of what nobody knows anything. Policies that sort by time left guess one number instead, 10 minutes and then twice as long
each time (``run_time_estimates``): a rank has no use for it, as what counts here is the chance to end soon."""


def find_ranks(
    expected: ExpectedRunTimes,
    remaining_s: FloatColumn,
    executed_s: FloatColumn,
    cost_s: FloatColumn,
    stops: BoolColumn,
) -> FloatColumn:
    """Rank of each job, in seconds; all arguments by row of one job table.

    A job with a distribution is ranked by it; another one by its ``remaining_s``; one of which nobody knows anything as if
    its run time were spread evenly in its logarithm. ``cost_s`` takes few different values.

    Complexity: O(jobs + kinds), and 1 ms for a kind and cost not seen before.
    """
    known = np.isfinite(remaining_s)
    ranks: FloatColumn = np.where(known, np.maximum(remaining_s, 1.0) + cost_s, 0.0)
    kind = expected.kind if len(expected.kind) else np.full(len(remaining_s), -1, dtype=np.int64)
    worked_s = np.where(kind >= 0, expected.worked_s if len(expected.kind) else 0.0, executed_s)
    rows = np.flatnonzero((kind >= 0) | ~known)
    if len(rows):
        keys = np.stack((kind[rows].astype(np.float64), cost_s[rows], stops[rows].astype(np.float64)))
        which, of_row = np.unique(keys, axis=1, return_inverse=True)
        curves = np.stack([_curve_of(expected, int(number), cost, bool(may)) for number, cost, may in which.T.tolist()])
        ranks[rows] = _interpolate(curves, of_row.ravel(), worked_s[rows])
    return ranks


def rank_curve(probability: FloatColumn, cost_s: float, stops: bool = True) -> FloatColumn:
    """The rank at each of :data:`.EDGES_S`, of a run time with these probabilities of bins, none of them 0."""
    return _cached_curve(np.ascontiguousarray(probability).tobytes(), cost_s, stops)


def _curve_of(expected: ExpectedRunTimes, number: int, cost_s: float, stops: bool) -> FloatColumn:
    return rank_curve(_UNIFORM if number < 0 else expected.probability[number], cost_s, stops)


@lru_cache(maxsize=20_000)
def _cached_curve(raw: bytes, cost_s: float, stops: bool) -> FloatColumn:
    probability = np.frombuffer(raw)
    past = np.concatenate(([0.0], np.cumsum(probability)))
    work = np.concatenate(([0.0], np.cumsum(probability * MIDDLES_S)))
    alive = np.maximum(past[-1] - past, 0.0)
    ending = past[None, 1:] - past[:-1, None]
    spent = work[None, 1:] - work[:-1, None] - EDGES_S[:-1, None] * ending
    spent += alive[None, 1:] * (EDGES_S[None, 1:] - EDGES_S[:-1, None])
    later = np.triu(np.ones((BINS, BINS), dtype=np.bool_))
    ratio = np.full((BINS, BINS), np.inf)
    np.divide(cost_s * alive[:-1, None] + spent, ending, out=ratio, where=later & (ending > 0))
    ranks = ratio.min(axis=1) if stops else ratio[:, -1]
    # Who ran for a year may well run for another one.
    return np.append(ranks, max(float(ranks[-1]), EDGES_S[-1]))


def _interpolate(curves: FloatColumn, of_row: IntColumn, worked_s: FloatColumn) -> FloatColumn:
    at, share = locate_in_bins(np.maximum(worked_s, 0.0))
    found: FloatColumn = curves[of_row, at] * (1 - share) + curves[of_row, at + 1] * share
    return np.maximum(found, 1.0)

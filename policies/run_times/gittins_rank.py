"""Gittins' rank of remaining run times, from learned distributions: expected work per expected completion.

For a job that has run for a, with run time X and a cost c of starting it now,

    rank(a, c) = min over D > 0 of (c + E[min(X - a, D) | X > a]) / P(X - a <= D | X > a)

The job of least rank goes first: with one server and Poisson arrivals that minimises the mean time in the system (Gittins,
1989; for several servers and high load: Scully, Grosof and Harchol-Balter, 2020). Two ends of what may be known are
well-known orders: where X is known the rank is the remaining time (SRPT); where X is spread evenly in its logarithm, it
grows with a, and the order is that of least attained service.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import (
    BINS,
    EDGES_S,
    LOW_S,
    MIDDLES_S,
    ROWS_AT_ONCE,
    accumulate,
    locate_in_bins,
)
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

    Complexity: O(jobs), and O(bins) for each kind and cost, and for each job that has run.
    """
    known = np.isfinite(remaining_s)
    ranks: FloatColumn = np.where(known, np.maximum(remaining_s, 1.0) + cost_s, 0.0)
    kind = expected.kind if len(expected.kind) else np.full(len(remaining_s), -1, dtype=np.int64)
    worked_s = np.where(kind >= 0, expected.worked_s if len(expected.kind) else 0.0, executed_s)
    rows = np.flatnonzero((kind >= 0) | ~known)
    if len(rows):
        curves = _Curves.of(expected.probability if len(expected.kind) else _UNIFORM[:0])
        # Of jobs that have not run yet many are alike.
        begun = worked_s[rows] > 0
        keys = np.stack((kind[rows][~begun].astype(np.float64), cost_s[rows][~begun], stops[rows][~begun]))
        which, of_row = np.unique(keys, axis=1, return_inverse=True)
        fresh = curves.ranks(which[0].astype(np.int64), np.zeros(which.shape[1]), which[1], which[2] > 0)
        ranks[rows[~begun]] = fresh[of_row.ravel()]
        mine = rows[begun]
        ranks[mine] = curves.ranks(kind[mine], worked_s[mine], cost_s[mine], stops[mine])
    return ranks


@dataclass(frozen=True, slots=True)
class _Curves:
    """Distributions, the last of them of what nobody knows anything, so that it is the one of number -1.

    Attributes:
        past: how likely run times are below each edge; shape (kinds, edges).
        work_s: what these run times add to the mean.
    """

    past: FloatColumn
    work_s: FloatColumn

    @classmethod
    def of(cls, probability: FloatColumn) -> _Curves:
        each = np.vstack((probability.reshape(-1, BINS), _UNIFORM))
        return cls(accumulate(each), accumulate(each * MIDDLES_S))

    def ranks(self, kind: IntColumn, worked_s: FloatColumn, cost_s: FloatColumn, stops: BoolColumn) -> FloatColumn:
        """By row, in parts of :data:`ROWS_AT_ONCE`."""
        ranks = np.zeros(len(kind))
        for first in range(0, len(kind), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            ranks[part] = self._ranks(kind[part], worked_s[part], cost_s[part], stops[part])
        return ranks

    def _ranks(self, kind: IntColumn, worked_s: FloatColumn, cost_s: FloatColumn, stops: BoolColumn) -> FloatColumn:
        """By row; of a job's bin what is left counts. D ends with a bin, so ranks are up to a tenth too large."""
        every, (at, share) = np.arange(len(kind)), locate_in_bins(worked_s)
        past, work_s = self.past[kind], self.work_s[kind]
        here = (past[every, at + 1] - past[every, at]) * (1 - share)
        old = worked_s >= EDGES_S[-1]
        worked_s = np.minimum(worked_s, EDGES_S[-1])
        here_s = here * (np.sqrt(np.maximum(worked_s, LOW_S[at]) * EDGES_S[at + 1]) - worked_s)
        alive = past[:, -1] - past[every, at + 1] + here
        ending = past[:, 1:] - past[every, at + 1][:, None]
        spent_s = work_s[:, 1:] - work_s[every, at + 1][:, None] - worked_s[:, None] * ending
        spent_s += (past[:, -1:] - past[:, 1:]) * (EDGES_S[1:] - worked_s[:, None])
        ending += here[:, None]
        ratio = np.full(ending.shape, np.inf)
        later = np.arange(BINS) >= at[:, None]
        np.divide((cost_s * alive + here_s)[:, None] + spent_s, ending, out=ratio, where=later & (ending > 0))
        ranks = np.where(stops, ratio.min(axis=1), ratio[:, -1])
        # Who ran for a year may well run for another one.
        found: FloatColumn = np.maximum(np.where(old, EDGES_S[-1], np.minimum(ranks, EDGES_S[-1])), 1.0)
        return found

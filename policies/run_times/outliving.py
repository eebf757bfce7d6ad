"""What jobs that have not ended tell: that they run for longer than they have so far.

Who learns from ended jobs alone believes at first that all jobs are as short as those that ended first. A job that has
reached a bin cannot end in an earlier one, so what is expected of it there belongs to later ones (redistribution to the
right: Efron, 1967).
"""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.run_times.remaining_time_curve import BINS
from slurm_soda.policies.snapshot import FloatColumn


def find_survival(weights: FloatColumn, reached: FloatColumn) -> FloatColumn:
    """Distribution of run times by jobs that ended and jobs that have reached a bin; adds up to 1.

    In each bin, those that end in it over those that were at risk to (Kaplan and Meier, 1958); with weights that hold a
    prior, the mean of a Dirichlet process' posterior (Susarla and Van Ryzin, 1976).

    Args:
        weights: of bins that jobs ended in, with a prior; all above 0.
        reached: weight of the jobs that have reached each bin and not ended.
    """
    at_risk = np.cumsum(weights[::-1])[::-1] + _beyond(reached)
    survive = np.cumprod(1.0 - weights[:-1] / at_risk[:-1])
    # No later bin is left to who survived all others.
    found: FloatColumn = -np.diff(np.concatenate(([1.0], survive, [0.0])))
    return found


def outlive(weights: FloatColumn, reached: FloatColumn, later: FloatColumn) -> FloatColumn:
    """Distribution by ``weights`` and by jobs that have reached a bin and not ended; adds up to 1.

    The result p solves

        p (sum of weights + sum of reached) = weights + sum over bins j of reached[j] M_j p,

    where M_j leaves what lies in j or later, and moves what lies before to bins from j on, in proportion to ``later``. So p
    is what a Markov kernel makes of ``weights``, which depends on ``reached``, ``later`` and the sum of ``weights`` alone:
    two weights that differ by some total variation lead to results that differ by no more. Jobs that have just begun
    change nothing. With ``find_survival(weights, reached)`` for ``later`` the result is that again.

    Args:
        weights: of bins; they add up to more than 0.
        reached: weight of the jobs that have reached each bin and not ended.
        later: where such jobs end, as far as nothing else says; each is above 0.

    Complexity: O(bins).
    """
    total, beyond = float(weights.sum()), _beyond(reached)
    to_come = np.cumsum(later[::-1])[::-1]
    sums, shapes = np.concatenate(([0.0], np.cumsum(weights))), np.concatenate(([0.0], np.cumsum(later)))
    moved = np.zeros(BINS)
    before, rate, start = 0.0, 0.0, 0
    for at in np.flatnonzero(reached).tolist():
        here = float(sums[at] - sums[start]) + rate * float(shapes[at] - shapes[start])
        before += here / (total + float(beyond[start]))
        moved[at] = reached[at] * before / to_come[at]
        rate, start = rate + float(moved[at]), at
    found: FloatColumn = (weights + later * np.cumsum(moved)) / (total + beyond)
    return found


def _beyond(reached: FloatColumn) -> FloatColumn:
    """Weight of the jobs to which each bin is no longer possible."""
    found: FloatColumn = np.append(np.cumsum(reached[:0:-1])[::-1], 0.0)
    return found

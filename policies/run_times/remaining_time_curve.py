"""A distribution of run times as a life table: how much is left to a job that has run so long already.

With the heavy tails of training jobs, that is the question: who has run for a day has most likely days left, however short
most jobs are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.sharing.job_kinds import Estimate, Source
from slurm_soda.policies.snapshot import FloatColumn, IntColumn

STEP_RATIO = 1.2
"""Our choice: run times are told apart by a fifth; what repeats exactly varies by more on a busy site."""
LONGEST_S = 365 * 86_400.0

EDGES_S: FloatColumn = np.concatenate(
    ([0.0], STEP_RATIO ** np.arange(math.ceil(math.log(LONGEST_S) / math.log(STEP_RATIO)) + 1))
)
"""Bin ``i`` is ``EDGES_S[i]`` up to ``EDGES_S[i + 1]``: logarithmic from 1 s to a year, what is shorter is the first one."""
BINS = len(EDGES_S) - 1
LOW_S: FloatColumn = np.maximum(EDGES_S[:-1], 1.0 / STEP_RATIO)
"""Where each bin begins, above 0. Inside a bin times are spread evenly in their logarithm."""
MIDDLES_S: FloatColumn = np.sqrt(LOW_S * EDGES_S[1:])
ROWS_AT_ONCE = 2000
"""Jobs times bins are worked through in parts of so many jobs, for memory's sake."""
_LATER = np.triu(np.ones((BINS, BINS)))
"""Bins that a job may still end in, by the bin that it has reached."""


def find_bins(run_s: FloatColumn) -> IntColumn:
    """Bins of run times; what is longer than a year belongs to the last one."""
    found: IntColumn = np.clip(np.searchsorted(EDGES_S, run_s, side="right") - 1, 0, BINS - 1)
    return found


def locate_in_bins(attained_s: FloatColumn) -> tuple[IntColumn, FloatColumn]:
    """The bin that each of these times has reached, and how much of the run times in it are shorter: from 0 to 1, and 1
    beyond the last.
    """
    at = find_bins(attained_s)
    passed = np.log(np.maximum(attained_s, LOW_S[at]) / LOW_S[at]) / np.log(EDGES_S[at + 1] / LOW_S[at])
    return at, np.minimum(passed, 1.0)


def accumulate(probability: FloatColumn) -> FloatColumn:
    """How likely a run time is below each edge, of distributions of bins; shape (..., edges)."""
    past = np.zeros((*probability.shape[:-1], BINS + 1))
    np.cumsum(probability, axis=-1, out=past[..., 1:])
    return past


def find_passed(past: FloatColumn, attained_s: FloatColumn) -> FloatColumn:
    """How likely a run time is below what each job has run for; ``past`` is by :func:`accumulate`, one row a job."""
    every, (at, share) = np.arange(len(past)), locate_in_bins(attained_s)
    passed: FloatColumn = past[every, at] * (1 - share) + past[every, at + 1] * share
    return passed


def find_quantiles_s(past: FloatColumn, wanted: FloatColumn) -> FloatColumn:
    """Run times below which so much of each distribution lies.

    Args:
        past: of each row, by :func:`accumulate`; shape (rows, edges).
        wanted: shape (rows, quantiles).
    """
    bins = np.clip((past[:, None, 1:] < wanted[:, :, None]).sum(axis=2), 0, BINS - 1)
    every = np.arange(len(past))[:, None]
    before, within = past[every, bins], past[every, bins + 1] - past[every, bins]
    inside = np.zeros(wanted.shape)
    np.divide(wanted - before, within, out=inside, where=within > 0)
    found: FloatColumn = LOW_S[bins] * (EDGES_S[bins + 1] / LOW_S[bins]) ** np.clip(inside, 0.0, 1.0)
    return found


def find_medians_left_s(past: FloatColumn, attained_s: FloatColumn) -> FloatColumn:
    """Median of the run time left to each job that has run so long; past a year, as long as it ran.

    At least 1 s is left: a job that runs has not ended. O(jobs x bins).

    Args:
        past: of each job, by :func:`accumulate`; shape (jobs, edges).
        attained_s: what each has run for.
    """
    attained = np.maximum(attained_s, 0.0)
    total_s = find_quantiles_s(past, (0.5 * (find_passed(past, attained) + past[:, -1]))[:, None])[:, 0]
    left: FloatColumn = np.maximum(np.where(attained >= EDGES_S[-1], attained, total_s - attained), 1.0)
    return left


@dataclass(frozen=True, slots=True)
class RemainingTimeCurve:
    """What a job's whole run time is expected to be once it has run for each of :data:`EDGES_S`.

    Attributes:
        past: how likely it is below each edge.
        total_s: the median of the run times that are still possible; ascending, one value an edge.
        error_s: mean distance of these run times from it.
    """

    past: FloatColumn
    total_s: FloatColumn
    error_s: FloatColumn

    @classmethod
    def of(cls, probability: FloatColumn) -> RemainingTimeCurve:
        """From the probability of each bin, all above 0.

        Complexity: O(bins squared), some 0.2 ms.
        """
        past = accumulate(probability)
        left = find_medians_left_s(np.broadcast_to(past, (BINS, BINS + 1)), EDGES_S[:-1])
        # Whoever ran for a year may well run for another one.
        total = np.maximum.accumulate(np.append(EDGES_S[:-1] + left, 2 * EDGES_S[-1]))
        weights = _LATER * probability
        distance = (weights * np.abs(MIDDLES_S - total[:-1, None])).sum(axis=1) / weights.sum(axis=1)
        return cls(past, total, np.append(distance, EDGES_S[-1]))

    def remaining(self, attained_s: float) -> Estimate:
        """Run time left to a job that has run so long, above 0; its error is linear between two edges."""
        attained = np.array([max(attained_s, 0.0)])
        left = float(find_medians_left_s(self.past[None], attained)[0])
        error = float(np.interp(attained, EDGES_S, self.error_s)[0]) if attained_s <= EDGES_S[-1] else attained_s
        return Estimate(left, error, Source.PREDICTED)

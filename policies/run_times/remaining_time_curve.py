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
MIDDLES_S: FloatColumn = np.sqrt(np.maximum(EDGES_S[:-1], 1.0 / STEP_RATIO) * EDGES_S[1:])
_LATER = np.triu(np.ones((BINS, BINS)))
"""Bins that a job may still end in, by the bin that it has reached."""


def find_bins(run_s: FloatColumn) -> IntColumn:
    """Bins of run times; what is longer than a year belongs to the last one."""
    found: IntColumn = np.clip(np.searchsorted(EDGES_S, run_s, side="right") - 1, 0, BINS - 1)
    return found


def locate_in_bins(attained_s: FloatColumn) -> tuple[IntColumn, FloatColumn]:
    """The bin that each of these times has reached, and how much of it lies behind: from 0 to 1, and 1 beyond the last."""
    at = find_bins(attained_s)
    return at, np.minimum((attained_s - EDGES_S[at]) / (EDGES_S[at + 1] - EDGES_S[at]), 1.0)


@dataclass(frozen=True, slots=True)
class RemainingTimeCurve:
    """What a job's whole run time is expected to be once it has run for each of :data:`EDGES_S`.

    Attributes:
        total_s: the median of the run times that are still possible; ascending, one value an edge.
        error_s: mean distance of these run times from it.
    """

    total_s: FloatColumn
    error_s: FloatColumn

    @classmethod
    def of(cls, probability: FloatColumn) -> RemainingTimeCurve:
        """From the probability of each bin, all above 0; inside a bin times are spread evenly in their logarithm.

        Complexity: O(bins squared), some 0.1 ms.
        """
        past = np.concatenate(([0.0], np.cumsum(probability)))
        alive = np.maximum(past[-1] - past[:-1], 0.0)
        wanted = np.minimum(past[:-1] + alive / 2, past[-1])
        at = np.clip(np.searchsorted(past, wanted, side="left") - 1, np.arange(BINS), BINS - 1)
        inside = np.clip((wanted - past[at]) / probability[at], 0.0, 1.0)
        low = np.maximum(EDGES_S[at], 1.0 / STEP_RATIO)
        total = np.maximum(low * (EDGES_S[at + 1] / low) ** inside, EDGES_S[:-1])
        # Whoever ran for a year may well run for another one.
        total = np.maximum.accumulate(np.append(total, 2 * EDGES_S[-1]))
        weights = _LATER * probability
        distance = (weights * np.abs(MIDDLES_S - total[:-1, None])).sum(axis=1) / weights.sum(axis=1)
        return cls(total, np.append(distance, EDGES_S[-1]))

    def remaining(self, attained_s: float) -> Estimate:
        """Run time left to a job that has run so long; above 0."""
        left, error = interpolate_remaining_s(self.total_s[None], self.error_s[None], np.array([attained_s]))
        return Estimate(float(left[0]), float(error[0]), Source.PREDICTED)


def interpolate_remaining_s(
    total_s: FloatColumn, error_s: FloatColumn, attained_s: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Run time left and its error, a row a job: rows of curves' totals and errors, and what each job has run for.

    Between two edges both are linear; past the last one a job has as long left as it ran. At least 1 s is left: a job
    that runs has not ended.
    """
    attained = np.maximum(attained_s, 0.0)
    at, share = locate_in_bins(attained)
    rows = np.arange(len(attained))
    total = total_s[rows, at] * (1 - share) + total_s[rows, at + 1] * share
    error = error_s[rows, at] * (1 - share) + error_s[rows, at + 1] * share
    old = attained > EDGES_S[-1]
    left: FloatColumn = np.maximum(np.where(old, attained, total - attained), 1.0)
    return left, np.where(old, attained, error)

"""How far a run time makes others like it likely: several widths, weighted by how well each foresaw a group's own jobs.

Runs of a search over parameters end after almost equal times, others after times that differ by factors. Which of it holds
is learned: a width's weight is how likely it made the group's jobs before each was seen, by Bayes' rule (prequential
likelihood: Dawid, 1984).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.run_times.remaining_time_curve import BINS, STEP_RATIO
from slurm_soda.policies.snapshot import FloatColumn

SPREAD_RATIO = 1.5
"""Our choice, by how likely the run times of generated workloads (seeds 1 and 2) were before they were seen: a job that ran
for t makes other times the likelier the closer they are to t, half as likely with each factor of 1.5."""
SPREAD_RATIOS = (1.0, *(SPREAD_RATIO**power for power in (0.25, 0.5, 1.0, 2.0, 4.0)))
"""Widths that are weighed: a job counts in its own bin only, or spreads a quarter as far as by :data:`SPREAD_RATIO`, up to
four times as far."""
SPREAD_PRIOR = 0.9
"""Our choice, on the same workloads: weight of :data:`SPREAD_RATIO` before anything is seen; the others share the rest."""


class Spreads:
    """Some widths, and what they make of the bins that jobs ended in."""

    def __init__(self, ratios: Sequence[float] = SPREAD_RATIOS) -> None:
        """``ratios``: by which times differ where one is half as likely as the other; 1 for a job's own bin only."""
        from_to = np.stack([_spread_matrix(ratio) for ratio in ratios])
        self._rows: FloatColumn = np.ascontiguousarray(from_to.transpose(1, 0, 2)).reshape(BINS, -1)
        self._columns: FloatColumn = np.ascontiguousarray(from_to.transpose(2, 1, 0))
        prior = np.full(len(ratios), 1.0)
        if len(ratios) > 1 and SPREAD_RATIO in ratios:
            prior[ratios.index(SPREAD_RATIO)] = (len(ratios) - 1) * SPREAD_PRIOR / (1 - SPREAD_PRIOR)
        self.prior: FloatColumn = prior / prior.sum()
        """The widths' weights before anything is seen; they add up to 1."""

    def weight_at(self, ended: FloatColumn, at: int) -> FloatColumn:
        """Weight in bin ``at``, by each width, of jobs that ended in the bins as ``ended`` says."""
        found: FloatColumn = ended @ self._columns[at]
        return found

    def spread(self, ended: FloatColumn, widths: FloatColumn) -> FloatColumn:
        """These jobs' weight in all bins, by the mean of the widths; it adds up to what ``ended`` does."""
        found: FloatColumn = widths @ (ended @ self._rows).reshape(len(widths), BINS)
        return found

    def learn(self, widths: FloatColumn, foreseen: FloatColumn, keep: float) -> FloatColumn:
        """The widths' weights after one more job, which each made as likely as ``foreseen`` says.

        With a probability of ``1 - keep`` jobs are of another width from now on, any of them as before anything was seen
        (fixed share: Herbster and Warmuth, 1998): so no number of equal run times makes others as good as impossible.
        """
        seen = widths * foreseen
        found: FloatColumn = (keep / seen.sum()) * seen + (1.0 - keep) * self.prior
        return found


def _spread_matrix(ratio: float) -> FloatColumn:
    """How likely each bin is made by a job that ended in a bin; by that one, rows add up to 1."""
    if ratio == 1.0:
        return np.eye(BINS)
    apart = np.abs(np.subtract.outer(np.arange(BINS), np.arange(BINS)))
    near = 0.5 ** (apart * math.log(STEP_RATIO) / math.log(ratio))
    found: FloatColumn = near / near.sum(axis=1, keepdims=True)
    return found

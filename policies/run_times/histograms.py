"""What ended jobs of one group say: of one owner, and of several, in which each owner counts once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slurm_soda.policies.run_times.remaining_time_curve import BINS
from slurm_soda.policies.run_times.spreads import Spreads
from slurm_soda.policies.snapshot import FloatColumn

PRIOR_JOBS = 5.0
"""Our choice: a group's own jobs count as much as all that is known more generally once there are so many of them."""
UNIFORM_PRIOR_JOBS = 1.0
"""The same for the distribution of nobody, behind that of everybody."""
OWNER_JOBS = PRIOR_JOBS
"""As so many jobs each owner counts in a group of several owners: our choice, as much as the more general group behind."""


@dataclass(slots=True)
class Histogram:
    """Jobs of one owner and one group that ended.

    Attributes:
        widths: weights of the :class:`.Spreads`, which add up to 1.
        ended: weight of the jobs that ended in each bin.
        total: its sum.
        jobs: how many ended.
    """

    widths: FloatColumn
    ended: FloatColumn = field(default_factory=lambda: np.zeros(BINS))
    total: float = 0.0
    jobs: int = 0
    _weights: FloatColumn | None = None

    def foresee(self, at: int, behind: FloatColumn, prior: float, spreads: Spreads) -> FloatColumn:
        """How likely bin ``at`` is by each width, where what is ``behind`` said it is, counted as ``prior`` jobs."""
        found: FloatColumn = (spreads.weight_at(self.ended, at) + prior * behind) / (self.total + prior)
        return found

    def add(self, at: int, foreseen: FloatColumn, keep: float, spreads: Spreads) -> None:
        """One more job, which ended in bin ``at``; what was before counts ``keep`` times as much as it did."""
        self.widths = spreads.learn(self.widths, foreseen, keep)
        self.ended *= keep
        self.ended[at] += 1.0
        self.total = self.total * keep + 1.0
        self.jobs += 1
        self._weights = None

    def distribution(self, spreads: Spreads) -> FloatColumn:
        """These weights, made to add up to 1."""
        found: FloatColumn = self.weights(spreads) / self.total
        return found

    def weights(self, spreads: Spreads) -> FloatColumn:
        """What these jobs weigh in each bin, each counted in close bins too, by the mean of the widths."""
        if self._weights is None:
            self._weights = spreads.spread(self.ended, self.widths)
        return self._weights


@dataclass(slots=True)
class OwnersMean:
    """Owners' own distributions, each of which adds up to 1, and their sum."""

    owners: dict[str, Histogram] = field(default_factory=dict)
    _counted: dict[str, FloatColumn] = field(default_factory=dict)
    """What of each owner is in the sum."""
    _changed: dict[str, None] = field(default_factory=dict)
    """Owners whose jobs say something else by now."""
    _sum: FloatColumn = field(default_factory=lambda: np.zeros(BINS))

    def update(self, owner: str, histogram: Histogram) -> None:
        """Take in what an owner's jobs say, in the place of what they said before."""
        self.owners[owner] = histogram
        self._changed[owner] = None

    def remove(self, owner: str) -> None:
        """Forget an owner."""
        if self.owners.pop(owner, None) is not None:
            self._changed[owner] = None

    @property
    def total(self) -> float:
        """Each owner counts as :data:`OWNER_JOBS` jobs."""
        return OWNER_JOBS * len(self.owners)

    @property
    def jobs(self) -> int:
        """That ended, of all owners."""
        return sum(histogram.jobs for histogram in self.owners.values())

    def weights(self, spreads: Spreads) -> FloatColumn:
        """These jobs' weight in each bin; what rounding left below 0 is 0."""
        for owner in self._changed:
            self._sum -= self._counted.pop(owner, 0.0)
            if owner in self.owners:
                self._sum += self._counted.setdefault(owner, self.owners[owner].distribution(spreads))
        self._changed.clear()
        return OWNER_JOBS * np.maximum(self._sum, 0.0)

"""What ended jobs of one group say: of one owner, and of several, in which each owner counts once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slurm_soda.policies.run_times.outliving import find_survival, outlive
from slurm_soda.policies.run_times.remaining_time_curve import BINS, STEP_RATIO
from slurm_soda.policies.run_times.spreads import Spreads
from slurm_soda.policies.snapshot import FloatColumn

PRIOR_JOBS = 5.0
"""Our choice: a group's own jobs count as much as all that is known more generally once there are so many of them."""
UNIFORM_PRIOR_JOBS = 1.0
"""The same for the distribution of nobody, behind that of everybody."""
OWNER_JOBS = PRIOR_JOBS
"""As so many jobs each owner counts in a group of several owners: our choice, as much as the more general group behind."""
_UNIFORM: FloatColumn = np.full(BINS, 1.0 / BINS)
_AS_LONG_AGAIN: FloatColumn = STEP_RATIO ** -np.arange(BINS) / (STEP_RATIO ** -np.arange(BINS)).sum()
"""Of jobs that have outlived all that their owner knows: each runs for as long again, in the median."""


@dataclass(slots=True)
class Histogram:
    """Jobs of one owner and one group.

    Attributes:
        keep: what jobs count times with each later one that ended.
        widths: weights of the :class:`.Spreads`, which add up to 1.
        ended: weight of the jobs that ended in each bin.
        total: its sum.
        jobs: how many ended.
        reached: weight of the jobs that have reached each bin and not ended; ``None`` where nobody runs.
        running: how many these are.
        heard_by: the group of several owners that this one is part of, once a job ended.
    """

    keep: float
    widths: FloatColumn
    ended: FloatColumn = field(default_factory=lambda: np.zeros(BINS))
    total: float = 0.0
    jobs: int = 0
    reached: FloatColumn | None = None
    running: int = 0
    heard_by: OwnersMean | None = None
    _weights: FloatColumn | None = None

    def foresee(self, at: int, behind: FloatColumn, prior: float, spreads: Spreads) -> FloatColumn:
        """How likely bin ``at`` is by each width, where what is ``behind`` said it is, counted as ``prior`` jobs."""
        found: FloatColumn = (spreads.weight_at(self.ended, at) + prior * behind) / (self.total + prior)
        return found

    def add(self, at: int, foreseen: FloatColumn, spreads: Spreads) -> None:
        """One more job, which ended in bin ``at``."""
        self.widths = spreads.learn(self.widths, foreseen, self.keep)
        self.ended *= self.keep
        self.ended[at] += 1.0
        self.total = self.total * self.keep + 1.0
        self.jobs += 1
        if self.reached is not None:
            self.reached *= self.keep
        self._weights = None

    def move(self, before: int, now: int, since: int) -> None:
        """A job that began when ``since`` jobs had ended, and had reached one bin, has reached another; 0 for none.

        It counts as one that ended when it began would: else jobs that run for long would be too large a part of those
        that are remembered.
        """
        weight = self.keep ** (self.jobs - since)
        self.running += (now > 0) - (before > 0)
        if self.reached is None:
            self.reached = np.zeros(BINS)
        if before:
            self.reached[before] = max(self.reached[before] - weight, 0.0)
        if now:
            self.reached[now] += weight
        if not self.running:
            self.reached = None

    def distribution(self, spreads: Spreads) -> FloatColumn:
        """What these jobs say by themselves, at least one of which ended; adds up to 1."""
        return self.with_prior(0.0, _UNIFORM, spreads)

    def with_prior(self, prior: float, behind: FloatColumn, spreads: Spreads) -> FloatColumn:
        """The same with what is ``behind``, counted as ``prior`` jobs."""
        if self._weights is None:
            self._weights = spreads.spread(self.ended, self.widths)
        weights = self._weights + prior * behind
        if self.reached is None:
            found: FloatColumn = weights / (self.total + prior)
            return found
        later = find_survival(self._weights + UNIFORM_PRIOR_JOBS * _AS_LONG_AGAIN, self.reached)
        return outlive(weights, self.reached, later)


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

    def note_change(self, owner: str) -> None:
        """What an owner's running jobs say has changed."""
        self._changed[owner] = None

    def remove(self, owner: str) -> None:
        """Forget an owner."""
        if self.owners.pop(owner, None) is not None:
            self._changed[owner] = None

    @property
    def jobs(self) -> int:
        """That ended, of all owners."""
        return sum(histogram.jobs for histogram in self.owners.values())

    def with_prior(self, prior: float, behind: FloatColumn, spreads: Spreads) -> FloatColumn:
        """What they say together, each owner as :data:`OWNER_JOBS` jobs, with what is ``behind`` as ``prior`` jobs."""
        for owner in self._changed:
            self._sum -= self._counted.pop(owner, 0.0)
            if owner in self.owners:
                self._sum += self._counted.setdefault(owner, self.owners[owner].distribution(spreads))
        self._changed.clear()
        weights = OWNER_JOBS * np.maximum(self._sum, 0.0)  # rounding may leave less
        found: FloatColumn = (weights + prior * behind) / (OWNER_JOBS * len(self.owners) + prior)
        return found

"""What a snapshot knows of the cost of preempting each of its jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LearnedCosts:
    """Seconds on each GPU that it costs to preempt a job now; empty where nothing was learned.

    A policy brings a number of its own for jobs of which nothing is known. What was learned is mixed with it by how much was
    seen, and counts up to a bound: :meth:`prices_s`.

    Attributes:
        learned_s: by row of the job table, what was learned: the time without progress around a preemption, and the work
            that would be done again if the job was stopped now; of a job that waits, without such work.
        weight: by row, how much that counts beside the policy's number; 0 (nothing was learned) to 1.
        most_s: by row, the price is no more than this, or than the policy's number where that is larger.
    """

    learned_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    weight: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    most_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.learned_s)

    def only(self, rows: NDArray[np.int64]) -> LearnedCosts:
        """Of some rows of the job table."""
        return LearnedCosts(self.learned_s[rows], self.weight[rows], self.most_s[rows]) if len(self) else self

    def prices_s(self, jobs: int, prior_s: float) -> NDArray[np.float64]:
        """Price of preempting each of ``jobs`` jobs, by row; ``prior_s`` is the policy's own number.

        It is ``prior_s`` to the bit where nothing was learned, or where what was learned is that.
        """
        if not len(self):
            return np.full(jobs, prior_s)
        mixed = prior_s + self.weight * (self.learned_s - prior_s)
        prices: NDArray[np.float64] = np.minimum(mixed, np.maximum(prior_s, self.most_s))
        return prices

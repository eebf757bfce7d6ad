"""What a snapshot knows of run times beyond one number a job: the distribution that was learned for each kind."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ExpectedRunTimes:
    """Distributions of whole run times, and how far each job has come; empty where nobody predicts run times.

    Attributes:
        probability: of each bin of :data:`.remaining_time_curve.EDGES_S`; shape (kinds, bins).
        kind: by row of the job table, a row of ``probability``; -1 for a job of which ``remaining_s`` says all there is.
        worked_s: by row, run time alone that its work so far took.
    """

    probability: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    kind: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    worked_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def only(self, rows: NDArray[np.int64]) -> ExpectedRunTimes:
        """Of some rows of the job table."""
        return ExpectedRunTimes(self.probability, self.kind[rows], self.worked_s[rows]) if len(self.kind) else self

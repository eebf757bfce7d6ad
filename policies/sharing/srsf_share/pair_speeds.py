"""What kinds of jobs keep of their speed beside each other, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.snapshot import FloatColumn


class PairSpeeds:
    """Shares of speed of pairs on one GPU; each pair is asked about once, whoever it is needed for."""

    def __init__(self, interference_view: InterferenceView, caution: float) -> None:
        self._interference_view, self._caution = interference_view, caution
        self._numbers: dict[JobKind | None, int] = {}
        self._table: FloatColumn = np.zeros((0, 0))

    def of(self, kinds: Sequence[JobKind | None]) -> FloatColumn:
        """Of each kind beside each; 0 where nobody knows, or where they do not fit. O(kinds^2) for those that are new."""
        known = len(self._numbers)
        numbers = [self._numbers.setdefault(kind, len(self._numbers)) for kind in kinds]
        if len(self._numbers) > known:
            self._grow(known)
        table: FloatColumn = self._table[np.ix_(numbers, numbers)]
        return table

    def _grow(self, known: int) -> None:
        kinds = list(self._numbers)
        self._table = np.pad(self._table, (0, len(kinds) - known))
        for one, mine in enumerate(kinds):
            for other in range(0 if one >= known else known, len(kinds)):
                its = kinds[other]
                if mine is not None and its is not None and self._interference_view.fit((mine, its)):
                    self._table[one, other] = self._interference_view.speed(mine, its, self._caution)

"""What kinds of jobs keep of their speed beside each other, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.known_pairs import known_pairs_of
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.policies.snapshot import FloatColumn


class PairSpeeds:
    """Shares of speed of pairs on one GPU; each pair is asked about once, whoever it is needed for."""

    def __init__(self, known: KindEstimates, caution: float) -> None:
        """``caution``: a slowdown counts as so many of its expected errors worse than known."""
        self._known, self._caution = known, caution
        self._pairs = known_pairs_of(known)

    def of(self, kinds: Sequence[JobKind | None]) -> FloatColumn:
        """Of each kind beside each; 0 where nobody knows, or where they do not fit. O(kinds^2) for those that are new."""
        told = [at for at, kind in enumerate(kinds) if kind is not None]
        numbers = self._pairs.numbers(kind for kind in kinds if kind is not None)
        pairs = self._pairs.ask(self._known, numbers, numbers)
        known = pairs.fits & ~np.isnan(pairs.xi)
        table = np.zeros((len(kinds), len(kinds)))
        table[np.ix_(told, told)] = np.where(known, 1.0 / np.maximum(pairs.plus_errors(self._caution), 1.0), 0.0)
        return table

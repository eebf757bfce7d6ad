"""Answers about pairs of kinds, kept for as long as the knowledge that they are from."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import NamedTuple
from weakref import ref

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn


class PairColumns(NamedTuple):
    """What kinds in rows are said to do beside kinds in columns."""

    fits: BoolColumn
    """Nobody says that they do not fit onto one GPU."""
    xi: FloatColumn
    """Slowdown of the first beside the second; NaN where nobody knows, or they do not fit."""
    error: FloatColumn
    assumed: BoolColumn
    """Nobody has seen or predicted that slowdown: it is the prior's."""

    def plus_errors(self, errors: float) -> FloatColumn:
        """As :meth:`.Estimate.plus_errors`."""
        return self.xi + errors * self.error if errors else self.xi


class KnownPairs:
    """Every pair is asked about once of each value of knowledge, which says the same for ever.

    Kinds are numbered as they are first asked about.
    """

    def __init__(self) -> None:
        self._numbers: dict[JobKind, int] = {}
        self._kinds: list[JobKind] = []
        self._asked = np.zeros((0, 0), dtype=np.bool_)
        none = np.zeros((0, 0), dtype=np.bool_)
        self._columns = PairColumns(none, np.zeros((0, 0)), np.zeros((0, 0)), none.copy())
        self._lock = Lock()

    def numbers(self, kinds: Iterable[JobKind]) -> IntColumn:
        """Of these kinds."""
        with self._lock:
            found = [self._number(kind) for kind in kinds]
            if len(self._kinds) > len(self._asked):
                self._grow(2 * len(self._kinds))
        return np.array(found, dtype=np.int64)

    def ask(self, known: KindEstimates, rows: IntColumn, columns: IntColumn) -> PairColumns:
        """Of each of these kinds beside each of those, by their numbers; ``known``: always the same value."""
        with self._lock:
            lacking = ~self._asked[np.ix_(rows, columns)]
            for at in np.flatnonzero(lacking.any(axis=1)).tolist():
                self._learn(known, int(rows[at]), columns[lacking[at]])
            fits, xi, error, assumed = self._columns
            both = np.ix_(rows, columns)
            return PairColumns(fits[both], xi[both], error[both], assumed[both])

    def _number(self, kind: JobKind) -> int:
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self._kinds)
            self._kinds.append(kind)
        return number

    def _learn(self, known: KindEstimates, row: int, columns: IntColumn) -> None:
        mine, others = self._kinds[row], [self._kinds[column] for column in columns.tolist()]
        fits, xi, error, assumed = self._columns
        able = [known.fits((mine, other)) is not False for other in others]
        told = [known.xi(mine, (other,)) if fit else None for fit, other in zip(able, others, strict=True)]
        fits[row, columns] = able
        xi[row, columns] = [np.nan if one is None else one.value for one in told]
        error[row, columns] = [np.nan if one is None else one.error for one in told]
        assumed[row, columns] = [one is not None and one.source == Source.PRIOR for one in told]
        self._asked[row, columns] = True

    def _grow(self, size: int) -> None:
        more = size - len(self._asked)
        self._asked = np.pad(self._asked, (0, more))
        fits, xi, error, assumed = self._columns
        self._columns = PairColumns(
            np.pad(fits, (0, more)), np.pad(xi, (0, more)), np.pad(error, (0, more)), np.pad(assumed, (0, more))
        )


_OF: dict[int, tuple[ref[KindEstimates], KnownPairs]] = {}
"""By identity, for as long as the knowledge is there."""


def known_pairs_of(known: KindEstimates) -> KnownPairs:
    """What has been asked of this knowledge, which never changes: whoever learns makes another value."""
    key = id(known)
    kept = _OF.get(key)
    if kept is not None and kept[0]() is known:
        return kept[1]
    pairs = KnownPairs()
    with suppress(TypeError):  # some values cannot be watched: of those nothing is kept
        _OF[key] = ref(known, lambda _: _OF.pop(key, None)), pairs
    return pairs

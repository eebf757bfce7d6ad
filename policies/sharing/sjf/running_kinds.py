"""What waiting kinds of jobs and running ones do to each other, in columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.known_pairs import known_pairs_of
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn


class RunningKinds:
    """Kinds of running jobs, numbered; what is known of them beside others is asked once for each pair."""

    def __init__(self, known: KindEstimates, bound_caution: float) -> None:
        """``bound_caution``: against a bound, slowdowns count as so many of their expected errors worse."""
        self._known, self._errors, self._pairs = known, bound_caution, known_pairs_of(known)
        self._in_pairs: IntColumn = np.zeros(0, dtype=np.int64)
        """Number there of each that is numbered here."""
        self._numbers: dict[JobKind, int] = {}
        self._asked: dict[JobKind, _KindSlowdowns] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, kind: JobKind) -> int:
        """Of a kind; a new one if it has none yet. All have theirs before the first is asked about."""
        return self._numbers.setdefault(kind, len(self._numbers))

    def slowdowns(self, mine: JobKind, whole: JobKind, wanted: BoolColumn) -> FloatColumn:
        """Slowdowns of a kind beside each of these, and of each beside it; infinite where they cannot meet.

        Four columns: expected ones of the kind and of the others, then those that count against a bound. A fifth is 1 where
        they can meet and one of the expected is only assumed, else 0.

        Args:
            mine: with the sub-batch that it would have; where nobody knows that, it counts as ``whole``, with its batch.
            wanted: whom it may meet, by number.
        """
        found = self._of(mine, wanted)
        xi, assumed = found.xi.copy(), found.assumed
        lacking = wanted & found.fits & np.isnan(xi).any(axis=1)
        if whole != mine and lacking.any():
            of_whole = self._of(whole, lacking)
            xi, assumed = np.where(np.isnan(xi), of_whole.xi, xi), np.where(lacking, of_whole.assumed, assumed)
        never = ~(wanted & found.fits) | np.isnan(xi).any(axis=1)
        slowdowns: FloatColumn = np.where(never[:, None], np.inf, np.maximum(xi, 1.0))
        return np.column_stack((slowdowns, ~never & assumed))

    def _of(self, mine: JobKind, wanted: BoolColumn) -> _KindSlowdowns:
        if mine not in self._asked:
            self._asked[mine] = _KindSlowdowns.nobody(len(self))
        found, new = self._asked[mine], np.flatnonzero(wanted & ~self._asked[mine].done)
        if len(new):
            if len(self._in_pairs) < len(self._numbers):
                self._in_pairs = self._pairs.numbers(self._numbers)
            me, others = self._pairs.numbers((mine,)), self._in_pairs[new]
            to_me, to_it = self._pairs.ask(self._known, me, others), self._pairs.ask(self._known, others, me)
            found.fits[new] = to_me.fits[0]
            found.xi[new, 0], found.xi[new, 1] = to_me.xi[0], to_it.xi[:, 0]
            found.xi[new, 2], found.xi[new, 3] = (
                to_me.plus_errors(self._errors)[0],
                to_it.plus_errors(self._errors)[:, 0],
            )
            found.assumed[new] = to_me.assumed[0] | to_it.assumed[:, 0]
            found.done[new] = True
        return found


class _KindSlowdowns(NamedTuple):
    """Of one kind beside those that are numbered."""

    done: BoolColumn
    fits: BoolColumn
    """Nobody says that they do not."""
    xi: FloatColumn
    """A row for each, as the first four of :meth:`RunningKinds.slowdowns`; NaN where nobody knows."""
    assumed: BoolColumn
    """One of the expected slowdowns is the prior's."""

    @classmethod
    def nobody(cls, count: int) -> _KindSlowdowns:
        done, fits, assumed = (np.zeros(count, dtype=np.bool_) for _ in range(3))
        return cls(done, fits, np.full((count, 4), np.nan), assumed)

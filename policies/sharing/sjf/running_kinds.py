"""What waiting kinds of jobs and running ones do to each other, in columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn


class RunningKinds:
    """Kinds of running jobs, numbered; what is known of them beside others is asked once for each pair."""

    def __init__(self, known: KindEstimates, bound_caution: float) -> None:
        """``bound_caution``: against a bound, slowdowns count as so many of their expected errors worse."""
        self._known, self._errors = known, bound_caution
        self._numbers: dict[JobKind, int] = {}
        self._asked: dict[JobKind, _KindSlowdowns] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, kind: JobKind) -> int:
        """Of a kind; a new one if it has none yet. All have theirs before the first is asked about."""
        return self._numbers.setdefault(kind, len(self._numbers))

    def slowdowns(self, mine: JobKind, whole: JobKind, wanted: BoolColumn) -> FloatColumn:
        """Slowdowns of a kind beside each of these, and of each beside it; infinite where they cannot meet.

        Four columns: expected ones of the kind and of the others, then those that count against a bound.

        Args:
            mine: with the sub-batch that it would have; where nobody knows that, it counts as ``whole``, with its batch.
            wanted: whom it may meet, by number.
        """
        found = self._of(mine, wanted)
        xi = found.xi.copy()
        lacking = wanted & found.fits & np.isnan(xi).any(axis=1)
        if whole != mine and lacking.any():
            xi = np.where(np.isnan(xi), self._of(whole, lacking).xi, xi)
        never = ~(wanted & found.fits) | np.isnan(xi).any(axis=1)
        slowdowns: FloatColumn = np.where(never[:, None], np.inf, np.maximum(xi, 1.0))
        return slowdowns

    def _of(self, mine: JobKind, wanted: BoolColumn) -> _KindSlowdowns:
        if mine not in self._asked:
            self._asked[mine] = _KindSlowdowns.nobody(len(self))
        found, known = self._asked[mine], self._known
        others = list(self._numbers)
        for number in np.flatnonzero(wanted & ~found.done).tolist():
            other = others[number]
            found.fits[number] = known.fits((mine, other)) is not False
            to_me, to_it = known.xi(mine, (other,)), known.xi(other, (mine,))
            for column, one in enumerate((to_me, to_it)):
                if one is not None:
                    found.xi[number, column::2] = one.value, one.plus_errors(self._errors)
        found.done[wanted] = True
        return found


class _KindSlowdowns(NamedTuple):
    """Of one kind beside those that are numbered."""

    done: BoolColumn
    fits: BoolColumn
    """Nobody says that they do not."""
    xi: FloatColumn
    """A row for each, as :meth:`RunningKinds.slowdowns`; NaN where nobody knows."""

    @classmethod
    def nobody(cls, count: int) -> _KindSlowdowns:
        return cls(np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_), np.full((count, 4), np.nan))

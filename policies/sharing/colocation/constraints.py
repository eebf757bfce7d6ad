"""Whether jobs may be on one GPU by memory and by what their owners bear."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.snapshot import KindEstimates


class ColocationConstraints:
    """What nobody knows is not risked. Asked once for all jobs that are alike, as thousands are."""

    def __init__(self, known: KindEstimates, interference_view: InterferenceView, bound_caution: float) -> None:
        """``bound_caution``: against a bound, slowdowns count as so many of their expected errors worse."""
        self._known, self._interference_view, self._bound_caution = known, interference_view, bound_caution
        self._number: dict[int, int] = {}
        self._numbers: dict[tuple[JobKind | None, float, float], int] = {}
        self._allowed: dict[tuple[int, ...], bool] = {}

    def allowed(self, row: int, there: Sequence[int]) -> bool:
        """Whether a job may join those in these rows on one GPU."""
        rows = (row, *there)
        key = tuple(map(self._like, rows))
        if key not in self._allowed:
            self._allowed[key] = self._judge(rows)
        return self._allowed[key]

    def _like(self, row: int) -> int:
        """A number that jobs which are alike share."""
        if row not in self._number:
            interference_view = self._interference_view
            traits = (
                interference_view.kind(row),
                interference_view.consent(row).max_slowdown,
                interference_view.accumulation_slowdown(row),
            )
            self._number[row] = self._numbers.setdefault(traits, len(self._numbers))
        return self._number[row]

    def _judge(self, rows: Sequence[int]) -> bool:
        interference_view = self._interference_view
        kinds = [kind for kind in map(interference_view.kind, rows) if kind is not None]
        if len(kinds) < len(rows) or self._known.fits(kinds) is not True:
            return False
        for one in rows:
            bound = interference_view.consent(one).max_slowdown
            if math.isfinite(bound) and self.worst(one, [other for other in rows if other != one]) > bound:
                return False
        return True

    def worst(self, row: int, others: Sequence[int]) -> float:
        """Slowdown of a job beside others, gradient accumulation included, as it counts; infinite if nobody knows."""
        interference_view = self._interference_view
        return interference_view.slowdown(row, others, self._bound_caution) * interference_view.accumulation_slowdown(
            row
        )

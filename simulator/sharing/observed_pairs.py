"""What is observed of jobs beside others, where owners set bounds: how slow they are, for how long, and who was parted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from slurm_soda.policies.sharing.parting.part_pairs import TRIGGER
from slurm_soda.policies.snapshot import FloatColumn

_ROUND = 6
"""Decimals of times in a snapshot, as those of other times: a grace must be over when it is on paper."""


class ObservedPairs:
    """Running jobs by row of the workload; pairs by job id."""

    def __init__(self, max_slowdown: FloatColumn) -> None:
        """``max_slowdown``: by row."""
        self._max_slowdown = max_slowdown.tolist()
        self._seen: dict[int, tuple[float, float]] = {}
        """Of jobs beside others: since when they and all of these make progress, and their slowdown since then."""
        self._due_s: dict[int, float] = {}
        """When it counts that a bound is broken, of those whose bound is."""
        self._apart: dict[int, set[int]] = {}

    def meet(self, row: int, since_s: float, slowdown: float) -> None:
        """A job has other co-runners than before; all of them make progress from ``since_s`` on."""
        self.leave(row)
        self._seen[row] = (since_s, slowdown)
        if slowdown > self._max_slowdown[row]:
            self._due_s[row] = since_s + TRIGGER.interval_s

    def leave(self, row: int) -> None:
        """A job is alone, or does not run any more."""
        self._seen.pop(row, None)
        self._due_s.pop(row, None)

    def is_due(self, now_s: float) -> bool:
        """Whether a bound has been broken for long enough."""
        return any(due_s <= now_s for due_s in self._due_s.values())

    def next_due_s(self, now_s: float) -> float:
        """When another one will have been; infinite for never."""
        return min((due_s for due_s in self._due_s.values() if due_s > now_s), default=math.inf)

    def columns(self, rows: Sequence[int], now_s: float) -> tuple[FloatColumn, FloatColumn]:
        """Slowdowns, and how long they have been observed, beside a table of these jobs; NaN where nobody could see one."""
        slowdown, lasted_s = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        for at, row in enumerate(rows) if self._seen else ():
            since_s, value = self._seen.get(row, (math.inf, math.nan))
            if since_s < now_s:
                slowdown[at], lasted_s[at] = value, round(now_s - since_s, _ROUND)
        return slowdown, lasted_s

    @property
    def apart(self) -> tuple[tuple[int, int], ...]:
        """Pairs of jobs that have not ended and were parted, the smaller id first."""
        return tuple(sorted((one, other) for one, others in self._apart.items() for other in others if one < other))

    def part(self, job_id: int, others: Iterable[int]) -> None:
        """A job leaves these for good."""
        for other in others:
            self._apart.setdefault(job_id, set()).add(other)
            self._apart.setdefault(other, set()).add(job_id)

    def end(self, job_id: int) -> None:
        """A job ended."""
        for other in self._apart.pop(job_id, ()):
            self._apart[other].discard(job_id)

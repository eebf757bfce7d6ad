"""What is observed of jobs beside others, where owners set bounds: how slow they are, for how long, and who was parted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.parting.part_pairs import TRIGGER
from slurm_soda.policies.snapshot import FloatColumn

_ROUND = 6
"""Decimals of times in a snapshot, as those of other times: a grace must be over when it is on paper."""


class _Behind(NamedTuple):
    """By how much a job is behind what its bound allows: it grows while the job is slowed more than that, and else falls."""

    since_s: float
    was_s: float
    """Until then."""
    rate: float
    """Seconds a second from then on."""

    def at(self, now_s: float) -> float:
        """Seconds, at an instant; 0: it is within its bound."""
        return max(self.was_s + self.rate * max(now_s - self.since_s, 0.0), 0.0)

    @property
    def ends_s(self) -> float:
        """When it has made up for that; infinite where it does not."""
        return self.since_s - self.was_s / self.rate if self.was_s > 0 > self.rate else math.inf


class ObservedPairs:
    """Running jobs by row of the workload; pairs by job id."""

    def __init__(self, max_slowdown: FloatColumn) -> None:
        """``max_slowdown``: by row."""
        self._max_slowdown = max_slowdown.tolist()
        self._seen: dict[int, tuple[float, float]] = {}
        """Of jobs beside others: since when they and all of these make progress, and their slowdown since then."""
        self._due_s: dict[int, float] = {}
        """When it counts that a bound is broken, of those whose bound is."""
        self._behind: dict[int, _Behind] = {}
        """Of jobs that were ever beside others in this run, and have a bound."""
        self._apart: dict[int, set[int]] = {}

    def meet(self, row: int, now_s: float, since_s: float, slowdown: float) -> None:
        """A job has other co-runners than before; all of them make progress from ``since_s`` on."""
        self._forget(row)
        self._count(row, now_s, since_s, slowdown)
        self._seen[row] = (since_s, slowdown)
        if slowdown > self._max_slowdown[row]:
            self._due_s[row] = since_s + TRIGGER.interval_s

    def be_alone(self, row: int, now_s: float, slowdown: float) -> None:
        """Nobody is beside a job; it may be slowed by itself, by gradient accumulation."""
        self._forget(row)
        if row in self._behind:
            self._count(row, now_s, now_s, slowdown)

    def leave(self, row: int) -> None:
        """A job does not run any more."""
        self._forget(row)
        self._behind.pop(row, None)

    def _count(self, row: int, now_s: float, since_s: float, slowdown: float) -> None:
        bound = self._max_slowdown[row]
        if bound < math.inf:
            before_s = self._behind[row].at(now_s) if row in self._behind else 0.0
            self._behind[row] = _Behind(since_s, before_s, 1.0 - bound / slowdown)

    def _forget(self, row: int) -> None:
        self._seen.pop(row, None)
        self._due_s.pop(row, None)

    def is_due(self, now_s: float) -> bool:
        """Whether a bound has been broken for long enough."""
        return any(due_s <= now_s for due_s in self._due_s.values())

    def next_due_s(self, now_s: float) -> float:
        """When another one will have been, or somebody has made up for that and may host again; infinite for never."""
        made_up = (behind.ends_s for behind in self._behind.values())
        return min((due_s for due_s in (*self._due_s.values(), *made_up) if due_s > now_s), default=math.inf)

    def columns(self, rows: Sequence[int], now_s: float) -> tuple[FloatColumn, FloatColumn]:
        """Slowdowns, and how long they have been observed, beside a table of these jobs; NaN where nobody could see one."""
        slowdown, lasted_s = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        for at, row in enumerate(rows) if self._seen else ():
            since_s, value = self._seen.get(row, (math.inf, math.nan))
            if since_s < now_s:
                slowdown[at], lasted_s[at] = value, round(now_s - since_s, _ROUND)
        return slowdown, lasted_s

    def behind_s(self, rows: Sequence[int], now_s: float) -> FloatColumn:
        """As in :class:`~slurm_soda.policies.sharing.snapshot.SharingJobs`, beside a table of these jobs."""
        if not self._behind:
            return np.zeros(len(rows))
        told = [round(self._behind[row].at(now_s), _ROUND) if row in self._behind else 0.0 for row in rows]
        return np.array(told, dtype=np.float64)

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

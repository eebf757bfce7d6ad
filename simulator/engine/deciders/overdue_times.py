"""When jobs of a simulation become overdue, and cease to be; what :mod:`slurm_soda.policies.waiting.overdue` says of a
snapshot, without one.
"""

from __future__ import annotations

from heapq import heappop, heappush

from slurm_soda.policies.session.ranking import INFINITY
from slurm_soda.policies.waiting.overdue import ROUNDING_S, find_sure_run_s


class OverdueTimes:
    """Jobs by row; each change is a push to a heap."""

    def __init__(self, passing_limit_s: float) -> None:
        self._limit_s = passing_limit_s
        self._since_s: dict[int, float] = {}
        self._becomes: list[tuple[float, int, float]] = []
        self._waits: dict[int, float] = {}
        """Overdue jobs that wait, and since when."""
        self._protected_until: dict[int, float] = {}

    def wait(self, row: int, since_s: float) -> None:
        """A job waits since then."""
        self.leave(row)
        if self._limit_s < INFINITY:
            self._since_s[row] = since_s
            heappush(self._becomes, (since_s + self._limit_s, row, since_s))

    def start(self, row: int, now_s: float) -> None:
        """It starts."""
        since_s = self._since_s.get(row, INFINITY)
        self.leave(row)
        if now_s - since_s >= self._limit_s - ROUNDING_S:
            self._protected_until[row] = now_s + find_sure_run_s(self._limit_s)

    def leave(self, row: int) -> None:
        """It neither waits nor runs."""
        self._since_s.pop(row, None)
        self._waits.pop(row, None)
        self._protected_until.pop(row, None)

    def any_now(self, now_s: float) -> bool:
        """Whether a job waits or runs that is overdue."""
        while self._becomes and self._becomes[0][0] <= now_s + ROUNDING_S:
            _, row, since_s = heappop(self._becomes)
            if self._since_s.get(row) == since_s:
                self._waits[row] = since_s
        if self._protected_until:
            over = [row for row, until_s in self._protected_until.items() if until_s <= now_s + ROUNDING_S]
            for row in over:
                del self._protected_until[row]
        return bool(self._waits or self._protected_until)

    def next_s(self) -> float:
        """When the next job becomes overdue; infinite for never."""
        while self._becomes and self._since_s.get(self._becomes[0][1]) != self._becomes[0][2]:
            heappop(self._becomes)
        return self._becomes[0][0] if self._becomes else INFINITY

"""Latency, errors and violations of an interval, from the line that HAProxy logs of each query."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from slurm_soda.services.percentile import percentile

LONGEST_INTERVAL_S = 30.0
"""Of what nobody took for so long, only the newest is kept."""
MOST_LATENCIES = 1_000_000

_GONE = (b"C", b"c")
"""First letter of a termination state: the client left (HAProxy 2.6 configuration manual, 8.5)."""
_REQUEST = b"R"
"""Second letter: it ended before a whole query had come in."""


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """Of the queries that ended in an interval. Latency is from the first byte of the query to the last of the answer."""

    queries: int = 0
    errors: int = 0
    """Not answered by an instance."""
    violations: int = 0
    """Answered later than the target, or given up by the client after that."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0


class QueryLog:
    """Collects lines ``LATENCY_MS STATUS TERMINATION``; :meth:`take` gives what came since it was last called."""

    def __init__(self, target_ms: float) -> None:
        self.target_ms = target_ms
        self._lock = threading.Lock()
        self._latencies_ms: list[int] = []
        self._errors = 0
        self._late_gone = 0

    def add(self, line: bytes) -> None:
        """One line of HAProxy's log; others are passed over."""
        words = line.split()
        if len(words) != 3 or not words[0].isdigit() or len(words[2]) != 2:
            return
        latency_ms, how = int(words[0]), words[2]
        if how[1:] == _REQUEST:
            return  # what came was no query
        with self._lock:
            if how[:1] in _GONE:
                self._late_gone += latency_ms > self.target_ms
            elif how != b"--":
                self._errors += 1
            elif len(self._latencies_ms) < MOST_LATENCIES:
                self._latencies_ms.append(latency_ms)

    def take(self) -> QueryFigures:
        """The figures of the interval that ends now."""
        with self._lock:
            latencies, errors, late = self._latencies_ms, self._errors, self._late_gone
            self._latencies_ms, self._errors, self._late_gone = [], 0, 0
        late_answers = sum(latency > self.target_ms for latency in latencies)
        return QueryFigures(
            queries=len(latencies) + errors + late,
            errors=errors,
            violations=late_answers + late,
            p50_ms=percentile(latencies, 0.50),
            p95_ms=percentile(latencies, 0.95),
            p99_ms=percentile(latencies, 0.99),
        )


@dataclass(slots=True)
class RequestCounter:
    """Queries that came in, over processes of HAProxy that count from 0 each."""

    _last: int = 0
    _since: int = 0

    def see(self, requests: int) -> None:
        """What HAProxy counts now."""
        self._since += requests - self._last if requests >= self._last else requests
        self._last = requests

    def take(self) -> int:
        """How many came since this was last called."""
        came, self._since = self._since, 0
        return came

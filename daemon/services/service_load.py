"""Load of services: the one that a decision counts with, and that by minute, from which the forecast learns and which people
are shown.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from slurm_soda.wire.services.router_report import RouterReport

MINUTE_S = 60.0
MOST_COUNT = 2**31 - 1
"""An INTEGER of PostgreSQL holds no more, and a router may report any number."""
MOST_UNSAVED = 10_000
"""Minutes that wait for the store; where it cannot be written the oldest go."""

_RISES = ((0.0, 1.0), (5.0, 0.5), (15.0, 0.2))
"""A load that rose is seen before the minute is over: by the newest report alone, and by the mean of so many seconds, if it
is above the mean of all by more than this part of it."""
_RISE_DEVIATIONS = 4.0
"""And by more than so many standard deviations of what chance makes of queries that come independently (Poisson)."""
_AHEAD_S = 30.0
"""A steady rise counts with what it will be by then: an instance that starts now is ready about then, and no earlier."""
_SLOPE_DEVIATIONS = 5.0
"""It must be steeper than so many standard deviations of what chance makes of a load that does not rise: with a line drawn
anew every second, that happens once in weeks.
"""
_PIECES = 6
"""A rise is steady if the means of so many parts of the minute are near a straight line:"""
_STEADY_RATIO = 5.0
"""their variance around it is at most so many times that of chance, as it is in all but one of a thousand straight rises."""


@dataclass(slots=True)
class RecentLoad:
    """Load of one service by the reports of the last minute, or of a cool-down that is shorter.

    Each report counts a second or two, whose noise would put off the end of a cool-down for ever.
    """

    _reports: deque[tuple[float, float]] = field(default_factory=deque)
    """When each came, by the steady clock, and its load."""

    def add(self, load_qps: float, steady_s: float, over_s: float = MINUTE_S) -> float:
        """Take in a report; gives the load in queries per second: the mean over so many seconds, a minute at most, or a
        higher one since, or the one that a steady rise comes to.
        """
        self._reports.append((steady_s, load_qps))
        while len(self._reports) > 1 and self._reports[0][0] <= steady_s - MINUTE_S:
            self._reports.popleft()
        mean = self._mean(over_s)
        found = max(mean, self._steady_rise())
        for span_s, part in _RISES:
            late = self._mean(min(span_s, over_s))
            counted_s = max(span_s, 1.0)
            chance = _RISE_DEVIATIONS * math.sqrt(max(mean * counted_s, 1.0)) / counted_s
            if late - mean > max(part * mean, chance):
                found = max(found, late)
        return found

    def _mean(self, span_s: float) -> float:
        since_s = self._reports[-1][0] - span_s
        loads = [load_qps for at_s, load_qps in self._reports if at_s > since_s or at_s == self._reports[-1][0]]
        return sum(loads) / len(loads)

    def _steady_rise(self) -> float:
        """The load in :data:`_AHEAD_S` if it goes on as in the last minute (least squares); 0 if that was no steady rise."""
        count, now_s = len(self._reports), self._reports[-1][0]
        span_s = now_s - self._reports[0][0]
        if span_s < MINUTE_S / 2 or count < 2 * _PIECES:
            return 0.0
        mean_s = sum(at_s - now_s for at_s, _ in self._reports) / count
        mean_qps = sum(load_qps for _, load_qps in self._reports) / count
        away = [(at_s - now_s - mean_s, load_qps - mean_qps) for at_s, load_qps in self._reports]
        squares = sum(at_s * at_s for at_s, _ in away)
        slope = sum(at_s * load_qps for at_s, load_qps in away) / squares
        per_s = max(mean_qps, 1.0)  # variance that chance makes of the mean of one second
        if slope <= _SLOPE_DEVIATIONS * math.sqrt(per_s * (count - 1) / span_s / squares):
            return 0.0
        pieces = [away[count * at // _PIECES : count * (at + 1) // _PIECES] for at in range(_PIECES)]
        off = [sum(load_qps - slope * at_s for at_s, load_qps in piece) / len(piece) for piece in pieces]
        if sum(one * one for one in off) / (_PIECES - 2) > _STEADY_RATIO * per_s * _PIECES / span_s:
            return 0.0
        return mean_qps + slope * (_AHEAD_S - mean_s)


@dataclass(slots=True)
class LoadMinute:
    """One minute of one service."""

    owner: str
    name: str
    at_s: float
    """Its beginning, Unix seconds."""
    reports: int = 0
    sum_qps: float = 0.0
    most_qps: float = 0.0
    p99_ms: float = 0.0
    """Largest of the reports'."""
    queries: int = 0
    errors: int = 0
    violations: int = 0
    cpu: int = 0
    """Most instances on CPU cores that were ready at a time."""
    gpu: int = 0

    @property
    def load_qps(self) -> float:
        """Mean of the reports."""
        return self.sum_qps / self.reports if self.reports else 0.0

    def add(self, report: RouterReport) -> None:
        """Take in one report of it."""
        ready = [one.device for one in report.instances if one.state == "ready"]
        self.reports += 1
        self.sum_qps += report.load_qps
        self.most_qps = max(self.most_qps, report.load_qps)
        self.p99_ms = max(self.p99_ms, report.p99_ms)
        self.queries = min(self.queries + report.queries, MOST_COUNT)
        self.errors = min(self.errors + report.errors, MOST_COUNT)
        self.violations = min(self.violations + report.violations, MOST_COUNT)
        self.cpu, self.gpu = max(self.cpu, ready.count("cpu")), max(self.gpu, ready.count("gpu"))


@dataclass(slots=True)
class QueryTotals:
    """Queries of all services since sodad started, by what routers reported."""

    in_time: int = 0
    late: int = 0
    failed: int = 0

    def add(self, report: RouterReport) -> None:
        """Take in a report; one whose parts are more than the whole counts with what can be."""
        failed = min(report.errors, report.queries)
        late = min(report.violations, report.queries - failed)
        self.failed, self.late = self.failed + failed, self.late + late
        self.in_time += report.queries - failed - late


@dataclass(slots=True)
class MinuteLoads:
    """Minutes that are going on, and those that are over and not in the store yet."""

    _current: dict[tuple[str, str], LoadMinute] = field(default_factory=dict)
    _over: list[LoadMinute] = field(default_factory=list)

    def add(self, key: tuple[str, str], report: RouterReport, now_s: float) -> None:
        """Take in a report that came now."""
        at_s = now_s - now_s % MINUTE_S
        minute = self._current.get(key)
        if minute is None or minute.at_s != at_s:
            if minute is not None:
                self._over.append(minute)
                del self._over[:-MOST_UNSAVED]
            minute = self._current[key] = LoadMinute(key[0], key[1], at_s)
        minute.add(report)

    def finished(self, now_s: float) -> list[LoadMinute]:
        """Those that are over; they are given again until they are :meth:`saved`."""
        at_s = now_s - now_s % MINUTE_S
        for key in [key for key, minute in self._current.items() if minute.at_s != at_s]:
            self._over.append(self._current.pop(key))
        del self._over[:-MOST_UNSAVED]
        return list(self._over)

    def saved(self, minutes: Collection[LoadMinute]) -> None:
        """These are in the store."""
        written = {id(minute) for minute in minutes}
        self._over = [minute for minute in self._over if id(minute) not in written]

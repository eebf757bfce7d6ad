"""Load of services by minute, from which the forecast learns and which people are shown."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from slurm_soda.wire.services.router_report import RouterReport

MINUTE_S = 60.0
MOST_COUNT = 2**31 - 1
"""An INTEGER of PostgreSQL holds no more, and a router may report any number."""
MOST_UNSAVED = 10_000
"""Minutes that wait for the store; where it cannot be written the oldest go."""


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

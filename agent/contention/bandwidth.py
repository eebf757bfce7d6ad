"""Turns the kernel's byte counters into memory bandwidth: of the node, of each domain, of each job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.agent.contention.resctrl import MON_GROUPS, ResctrlGroup

ByteCounters = Mapping[str, Mapping[int, int | None]]

LEAST_INTERVAL_S = 0.1
"""Readings closer together than this say nothing: the kernel updates counters about once a second."""
READING_SKEW_RATIO = 0.02
"""Files are read one after the other, so the root may seem to have counted this much less than the groups it contains."""


@dataclass(frozen=True, slots=True)
class BandwidthRates:
    """Bytes per second between two readings."""

    node: float
    complete: bool
    """False: a counter was missing or started anew, so the sums are lower bounds."""
    domains: dict[int, float] = field(default_factory=dict)
    jobs: dict[int, float] = field(default_factory=dict)
    """By job, of those with a group of ours."""


class BandwidthMeter:
    """Remembers the reading before."""

    def __init__(self) -> None:
        self._before: dict[str, dict[int, int | None]] = {}
        self._at_s: float | None = None

    def read(self, now_s: float, counters: ByteCounters) -> BandwidthRates | None:
        """Rates since the reading before; None at the first one, without counters, and too soon after the last one.

        A group that was not there before has counted from 0. A counter that fell has started anew (its group was made
        again, the kernel cleared it): nothing is known of that interval. The kernel widens the hardware's counters to
        64 bits itself, so a wrap needs no other treatment. The root's count contains its monitoring groups', which
        come and go: what is the root's own is the difference.
        """
        readings = {path: dict(values) for path, values in counters.items()}
        _take_out_groups(readings)
        if not readings:
            self._before, self._at_s = {}, None
            return None
        if self._at_s is not None and now_s - self._at_s < LEAST_INTERVAL_S:
            return None
        before, at_s = self._before, self._at_s
        self._before, self._at_s = readings, now_s
        return None if at_s is None else _rates(before, readings, now_s - at_s)


def _take_out_groups(readings: dict[str, dict[int, int | None]]) -> None:
    root = readings.get("", {})
    for path, values in readings.items():
        if path.startswith(f"{MON_GROUPS}/"):
            for domain, value in values.items():
                own = root.get(domain)
                root[domain] = None if own is None or value is None else own - value


def _rates(
    before: Mapping[str, Mapping[int, int | None]], now: Mapping[str, Mapping[int, int | None]], seconds: float
) -> BandwidthRates:
    complete = True
    gained: dict[int, float] = {}
    jobs: dict[int, float] = {}
    for path in sorted(now, reverse=True):  # the root, "", last: its own needs what the groups gained
        group = ResctrlGroup.parse(path)
        if group is not None:
            jobs.setdefault(group.job_id, 0.0)
        for domain, value in now[path].items():
            last = before[path].get(domain) if path in before else 0
            if value is None or last is None:
                complete = False
                continue
            delta = value - last
            if delta < 0:
                complete = complete and not path and -delta <= READING_SKEW_RATIO * gained.get(domain, 0.0)
                continue
            gained[domain] = gained.get(domain, 0.0) + delta
            if group is not None:
                jobs[group.job_id] += delta / seconds
    return BandwidthRates(
        node=sum(gained.values()) / seconds,
        complete=complete,
        domains={domain: value / seconds for domain, value in sorted(gained.items())},
        jobs=dict(sorted(jobs.items())),
    )

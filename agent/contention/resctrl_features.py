"""What a node's resctrl can measure and limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FULL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class MbaFeatures:
    """Memory-bandwidth allocation, from ``info/MB``: a percentage per group and L3 domain."""

    least_percent: int
    step_percent: int
    groups: int
    """Control groups at the same time, the root included."""
    linear: bool
    domains: tuple[int, ...]

    def round(self, percent: float) -> int:
        """The value that the kernel will take for this one: the next step upwards, at most 100."""
        wanted = max(int(-(-percent // 1)), self.least_percent)
        return min(-(-wanted // self.step_percent) * self.step_percent, FULL_PERCENT)

    def steps(self, wanted_percent: Iterable[float]) -> tuple[int, ...]:
        """The steps that differ on this node, downwards; 100 is no step."""
        found = {self.round(percent) for percent in wanted_percent}
        return tuple(sorted((percent for percent in found if percent < FULL_PERCENT), reverse=True))


@dataclass(frozen=True, slots=True)
class ResctrlFeatures:
    """What this node's resctrl can do."""

    throttle: MbaFeatures | None
    """None without MBA, or where limits are absolute (AMD, mount option ``mba_MBps``)."""
    event: str
    """The counter that is read, or empty: no bandwidth monitoring."""
    monitor_ids: int
    """Groups with counters at the same time, the root included."""
    domains: tuple[int, ...]
    """L3 domains with counters, ascending; one per socket on most machines; there may be gaps."""
    missing: str
    """Why something is not there, or empty."""

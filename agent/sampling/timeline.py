"""A value over time in a bounded number of points: when they are full, two become one."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_soda.wire.gpu_use import HALF_PERCENTS, NOT_MEASURED, TIMELINE_POINTS

FIRST_STEP_S = 5.0
"""Ten minutes fit before points are joined for the first time."""


@dataclass(slots=True)
class Timeline:
    """Means of a ratio over equal steps from 0 on; the last point is still growing."""

    step_s: float = FIRST_STEP_S
    points: bytearray = field(default_factory=bytearray)
    """Those that are done, as in :class:`slurm_soda.wire.gpu_use.GpuUse`."""
    covered_s: float = 0.0
    """Of the growing one."""
    busy_s: float = 0.0

    def add(self, from_s: float, until_s: float, ratio: float) -> None:
        """The ratio held for this time, which begins at the end of the time before or later."""
        while until_s > self.step_s * TIMELINE_POINTS:
            self._join_points()
        at_s = from_s
        while at_s < until_s:
            place = int(at_s // self.step_s)
            end_s = min((place + 1) * self.step_s, until_s)
            self._grow_to(place)
            self.covered_s += end_s - at_s
            self.busy_s += (end_s - at_s) * ratio
            at_s = end_s

    def text(self) -> str:
        """All points, the growing one included, in hexadecimal digits."""
        growing = bytes([self._value()]) if self.covered_s > 0 else b""
        return (bytes(self.points) + growing).hex()

    def _value(self) -> int:
        return NOT_MEASURED if self.covered_s <= 0 else round(HALF_PERCENTS * min(self.busy_s / self.covered_s, 1.0))

    def _grow_to(self, place: int) -> None:
        while len(self.points) < place:
            self.points.append(self._value())
            self.covered_s = self.busy_s = 0.0

    def _join_points(self) -> None:
        """Two points become one; an odd one at the end joins the growing one."""
        if len(self.points) % 2:
            last = self.points.pop()
            if last != NOT_MEASURED:
                self.covered_s += self.step_s
                self.busy_s += self.step_s * last / HALF_PERCENTS
        pairs = zip(self.points[::2], self.points[1::2], strict=True)
        self.points = bytearray(_mean(one, other) for one, other in pairs)
        self.step_s *= 2


def _mean(one: int, other: int) -> int:
    if NOT_MEASURED in (one, other):
        return min(one, other)  # the one that was measured, if any
    return (one + other + 1) // 2

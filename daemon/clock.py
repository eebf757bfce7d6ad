"""Time as the daemon sees it, injected so that tests own it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Where times come from."""

    def now_s(self) -> float:
        """Wall clock, Unix seconds; compares with Slurm's times."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some instant; never jumps, and goes on while the machine sleeps. For durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        return time.time()

    def elapsed_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Instant:
    """One instant by both clocks. The first may be set by hours at any time, so nothing that lasts is measured by it."""

    now_s: float
    """As :meth:`Clock.now_s`."""
    steady_s: float
    """As :meth:`Clock.elapsed_s`."""

    @classmethod
    def read(cls, clock: Clock) -> Instant:
        """This instant."""
        return cls(clock.now_s(), clock.elapsed_s())

    def steady_since(self, wall_s: float, longest_s: float) -> float:
        """When something was, by the steady clock, of which only the wall clock's word is left, as after a restart.

        It is taken for between 0 and ``longest_s`` old, as the wall clock may have been set meanwhile.
        """
        return self.steady_s - min(max(self.now_s - wall_s, 0.0), longest_s)

    def wall(self, steady_s: float) -> float:
        """When something is, by the wall clock as it is set now."""
        return self.now_s + (steady_s - self.steady_s)

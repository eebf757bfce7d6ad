"""Time as the daemon sees it, injected so that tests own it."""

from __future__ import annotations

import time
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

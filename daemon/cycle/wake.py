"""What wakes the loop before its time: submissions and ends (a touched file), agents' reports, signals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

FILE_CHECK_INTERVAL_S = 0.05
"""How often the wake file is looked at: one stat, a microsecond."""


class WakeEvent:
    """One event that many threads may set, and a file that other programs touch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._called = threading.Event()
        self._signalled = False
        self._stamp = self._read_stamp()

    def call(self) -> None:
        """Wake the loop now; from any thread."""
        self._called.set()

    def wake_from_signal(self) -> None:
        """The same from a signal handler, which may interrupt whoever holds the event's lock: it must not take it."""
        self._signalled = True

    def wait(self, longest_s: float, debounce_s: float, *, alive: Callable[[], None] = lambda: None) -> bool:
        """Sleep until something happens or the time is over; true if something happened.

        After the first event it waits ``debounce_s`` more, so that a burst shares one cycle.

        Args:
            longest_s: at most this long.
            debounce_s: pause after an event.
            alive: called about once a second, to tell a watchdog that the daemon only sleeps.
        """
        left_s, since_alive_s = longest_s, 0.0
        while left_s > 0 and not self._happened():
            part_s = min(FILE_CHECK_INTERVAL_S, left_s)
            self._called.wait(part_s)
            left_s -= part_s
            since_alive_s += part_s
            if since_alive_s >= 1.0:
                alive()
                since_alive_s = 0.0
        if not self._happened():
            return False
        if debounce_s > 0:
            threading.Event().wait(debounce_s)
        self._called.clear()
        self._signalled = False
        self._stamp = self._read_stamp()
        return True

    def _happened(self) -> bool:
        return self._signalled or self._called.is_set() or self._read_stamp() != self._stamp

    def _read_stamp(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size)

"""What wakes the loop before its time: submissions and ends (a touched file), agents' reports, signals."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FILE_CHECK_INTERVAL_S = 0.05
"""How often the wake file is looked at while its directory cannot be watched: one stat, a microsecond."""

WATCHED_LOOK_EVERY_S = 1.0
"""The same beside inotify, which does not see what other machines write to a shared file system."""

_MODIFY, _ATTRIB, _MOVED_TO, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x2, 0x4, 0x80, 0x100, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED, _ONLY_DIRECTORY = 0x2000, 0x4000, 0x8000, 0x0100_0000
_WATCHED = _MODIFY | _ATTRIB | _MOVED_TO | _CREATE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
_DIRECTORY_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_EVENT = struct.Struct("iIII")
"""Linux' ``struct inotify_event``: watch, mask, cookie, length of the name that follows."""

_READ_BYTES = 64 * 1024


class WakeEvent:
    """Sleeps until some thread or signal handler calls, or until other programs touch a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._calls, select.POLLIN)
        self._watch = _Watch(path)
        if self._watch.fd >= 0:
            self._poll.register(self._watch.fd, select.POLLIN)
        self._woken = False
        self._stamp = self._read_stamp()

    def close(self) -> None:
        """Give the file descriptors back; afterwards nobody may call."""
        self._watch.close()
        os.close(self._calls)

    def call(self) -> None:
        """Wake the loop now; from any thread, and from signal handlers, as no lock is taken."""
        with suppress(BlockingIOError):  # called 2^64 times since the last wait: that wakes as well
            os.eventfd_write(self._calls, 1)

    def wait(self, longest_s: float, debounce_s: float, *, alive: Callable[[], None] = lambda: None) -> bool:
        """Sleep until something happens or the time is over; true if something happened.

        After the first event it waits ``debounce_s`` more, so that a burst shares one cycle. What happens between two waits
        ends the next one.

        Args:
            longest_s: at most this long.
            debounce_s: pause after an event.
            alive: called about once a second, to tell a watchdog that the daemon only sleeps.
        """
        now_s = time.monotonic()
        end_s, alive_s = now_s + longest_s, now_s + 1.0
        self._sleep(0.0)
        while not self._woken and now_s < end_s:
            self._sleep(min(end_s, alive_s) - now_s)
            now_s = time.monotonic()
            if now_s >= alive_s:
                alive()
                alive_s = now_s + 1.0
        if not self._woken:
            return False
        if debounce_s > 0:
            time.sleep(debounce_s)
        self._forget()
        return True

    def _sleep(self, longest_s: float) -> None:
        """Until an event, or until the file is to be looked at; notes whether the loop is woken."""
        pause_s = WATCHED_LOOK_EVERY_S if self._watch.works() else FILE_CHECK_INTERVAL_S
        ready = self._poll.poll(max(0.0, min(pause_s, longest_s)) * 1000)
        called = any(fd == self._calls for fd, _ in ready)
        self._woken = self._watch.touched() or called or self._read_stamp() != self._stamp

    def _forget(self) -> None:
        """All that has happened so far; the loop's next cycle sees what came of it."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._calls)
        self._watch.touched()
        self._stamp = self._read_stamp()
        self._woken = False

    def _read_stamp(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size)


class _Watch:
    """What inotify tells of one file, through its directory: so the file may come later, or be replaced.

    ``fd`` is -1 where the kernel has no inotify for us; nothing is ever touched then.
    """

    def __init__(self, path: Path) -> None:
        self._directory, self._name = os.fsencode(path.absolute().parent), os.fsencode(path.name)
        self._watched = -1
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self.fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            self.fd = -1

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = self._watched = -1

    def works(self) -> bool:
        """Whether touches are seen from now on; the directory may have come or come back."""
        if self._watched < 0 <= self.fd:
            self._watched = self._libc.inotify_add_watch(self.fd, self._directory, _WATCHED)
        return self._watched >= 0

    def touched(self) -> bool:
        """Whether the file was touched since the last call."""
        if self.fd < 0:
            return False
        found = False
        with suppress(BlockingIOError):
            while events := os.read(self.fd, _READ_BYTES):
                found |= self._read_events(events)
        return found

    def _read_events(self, events: bytes) -> bool:
        found, at = False, 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            named = events[at - length : at].rstrip(b"\0") == self._name
            found |= bool(mask & _OVERFLOW) or (named and watch == self._watched)
            if mask & _DIRECTORY_GONE and watch == self._watched:
                self._libc.inotify_rm_watch(self.fd, watch)  # one that was moved away is still watched
                self._watched, found = -1, True
        return found

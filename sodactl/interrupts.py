"""Ending a command that owns things outside: kill and a closed terminal are to clean up as Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType


def interruptible() -> list[int]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt too; gives the list to which the signals that come are added."""
    caught: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    return caught

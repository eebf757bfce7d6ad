"""Ending a command that owns things outside: kill and a closed terminal are to clean up as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
import weakref
from types import FrameType

_LATER_S = 0.01


def interruptible() -> list[int]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt too; gives the list to which the signals that come are added.

    A signal waits while a lock is being taken or given back, and while a finaliser runs. There the exception would leave
    the lock taken for ever, and what cleans up would wait for it; or nobody would hear of the exception.
    """
    caught: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _delicate(frame):
            signal.setitimer(signal.ITIMER_REAL, _LATER_S)
            return
        caught.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, interrupt)
    return caught


def _delicate(frame: FrameType | None) -> bool:
    """Whether the interrupted code, or one of its callers, is a lock's ``with`` written in Python, or a finaliser."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename == weakref.__file__:
            return True
        if code.co_filename == threading.__file__ and code.co_name in ("__enter__", "__exit__"):
            return True
        frame = frame.f_back
    return False

"""Ending a command that owns things outside: kill and a closed terminal are to clean up as Ctrl-C does."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
import weakref
from types import FrameType

_RETRY_AFTER_S = 0.01
_IMPORTS = "<frozen importlib._bootstrap>"

CLEANUP_S = 30.0
"""So long after an interrupt no second one comes: a terminal that closes says so twice, and people press Ctrl-C again."""


def raise_interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt too, once in :data:`CLEANUP_S`. SIGHUP not under nohup.

    A signal waits while a lock is being taken or given back, while a finaliser runs, and while a module is imported. There
    the exception would leave the lock taken for ever, and what cleans up would wait for it; or nobody would hear of it.
    """
    heard_s = -math.inf

    def interrupt(_number: int, frame: FrameType | None) -> None:
        nonlocal heard_s
        if time.monotonic() < heard_s + CLEANUP_S:
            return
        if _must_not_interrupt(frame):
            signal.setitimer(signal.ITIMER_REAL, _RETRY_AFTER_S)
            return
        heard_s = time.monotonic()
        raise KeyboardInterrupt

    def dropped(problem: sys.UnraisableHookArgs) -> None:
        """Something that runs unseen, which :func:`_must_not_interrupt` does not know, has swallowed an exception:
        once more.
        """
        nonlocal heard_s
        if not issubclass(problem.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(problem)
            return
        heard_s = -math.inf
        signal.setitimer(signal.ITIMER_REAL, _RETRY_AFTER_S)

    sys.unraisablehook = dropped
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, interrupt)


def _must_not_interrupt(frame: FrameType | None) -> bool:
    """Whether the interrupted code or a caller is a lock's ``with`` written in Python, a finaliser, or an import.

    Files, and HTTP answers with them, are finalised by their ``close``, and whatever that raises is dropped in silence.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_filename in (weakref.__file__, _IMPORTS) or code.co_name in ("close", "__del__"):
            return True
        if code.co_filename == threading.__file__ and code.co_name in ("__enter__", "__exit__"):
            return True
        frame = frame.f_back
    return False

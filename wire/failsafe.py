"""Runs a prolog or an epilog so that it ends in time and with status 0, whatever happens.

A prolog that fails drains its node and holds the job; one that hangs, hangs for ever (PrologEpilogTimeout is never by
default). See slurm.conf(5), "Prolog and Epilog Scripts".
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

TIME_LIMIT_S = 2.0


def run_failsafe(step: Callable[[], str], name: str, time_limit_s: float = TIME_LIMIT_S) -> None:
    """Run ``step``, say on standard error (slurmd's log) what it could not do, and leave with status 0."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        _say(f"{name}: stopped after {time_limit_s:g} s")
        os._exit(0)

    try:
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, time_limit_s)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        fault = step()
        if fault:
            _say(f"{name}: {fault}")
    except BaseException as error:  # noqa: BLE001  (the one place where nothing may escape)
        _say(f"{name}: {type(error).__name__}: {error}")
    os._exit(0)  # also spares the interpreter's clean-up, some ms of every job


def _say(text: str) -> None:
    try:
        line = text.encode("utf-8", "backslashreplace").replace(b"\n", b" ")
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"slurm-soda " + line[:1000] + b"\n")
    except OSError:
        pass

"""Waits of tests for processes that they started."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
"""For what takes a second on a machine with nothing else to do."""


def wait_for(ask: Callable[[], Any]) -> Any:
    """The first answer that is true, within :data:`PATIENCE_S`."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("waited in vain")

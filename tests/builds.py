"""What all workers of a test run share: the first one makes it, the others wait for that."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory that ``make`` has filled, once for all workers (pytest-xdist) of this run."""
    own = factory.getbasetemp()
    place = (own.parent if own.name.startswith("popen-") else own) / name
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / ".done"
        if not done.exists():
            place.mkdir(exist_ok=True)
            make(place)
            done.touch()
    return place

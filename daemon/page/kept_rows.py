"""What is read from the store for all who look, and kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slurm_soda.daemon.clock import Clock

T = TypeVar("T")

MAX_AGE_S = 2.0
MAX_AGE_RATIO = 20
"""Kept for so many times as long as reading took, if that is longer: a twentieth of the time at most is for reading, however
many look at the page."""


@dataclass(slots=True)
class KeptRows(Generic[T]):
    """The last reading, made anew where it is old; one at a time."""

    clock: Clock
    read: Callable[[], Awaitable[T]]
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _kept: T | None = None
    _until_s: float = float("-inf")

    async def get(self) -> T:
        """What :attr:`read` gave lately; an error of it is the caller's."""
        async with self._reading:
            began_s = self.clock.elapsed_s()
            kept = self._kept
            if kept is None or began_s >= self._until_s:
                kept = self._kept = await self.read()
                now_s = self.clock.elapsed_s()
                self._until_s = now_s + max(MAX_AGE_S, MAX_AGE_RATIO * (now_s - began_s))
            return kept

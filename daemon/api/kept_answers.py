"""Answers that serve many requests, and who waits while others are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from fastapi import Response

from slurm_soda.daemon.clock import Clock


class KeptAnswers:
    """Answers that serve everybody who asks the same while they are fresh. They are made one at a time."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock, self._most = clock, most
        self._making = asyncio.Lock()
        self._kept: dict[Hashable, tuple[float, Response]] = {}
        """Until when each is fresh, by what was asked; oldest first."""

    async def get(
        self, asked: Hashable, make: Callable[[], Awaitable[Response]], max_age_s: Callable[[float], float]
    ) -> Response:
        """The answer; ``max_age_s`` says how old it may become, given the time that it took to make."""
        async with self._making:
            began_s = self._clock.elapsed_s()
            if not self.has(asked):
                answer = await make()
                self._kept.pop(asked, None)
                self._kept[asked] = began_s + max_age_s(self._clock.elapsed_s() - began_s), answer
                if len(self._kept) > self._most:
                    del self._kept[next(iter(self._kept))]
            kept = self._kept[asked][1]
            return Response(bytes(kept.body), media_type=kept.media_type)

    def has(self, asked: Hashable) -> bool:
        """Whether a fresh answer is kept."""
        return asked in self._kept and self._clock.elapsed_s() < self._kept[asked][0]


class UserTurns:
    """Lets each user have one answer made at a time, and rest in between, so that nobody takes the turns of all others."""

    def __init__(self, clock: Clock, rest_s: Callable[[float], float]) -> None:
        """``rest_s`` says how long a user rests, given the time that the answer took."""
        self._clock, self._rest_s = clock, rest_s
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rests_until_s: dict[str, float] = {}

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait for the user's turn, and keep it."""
        lock = self._locks.setdefault(user, asyncio.Lock())
        async with lock:
            await asyncio.sleep(max(self._rests_until_s.get(user, 0.0) - self._clock.elapsed_s(), 0.0))
            began_s = self._clock.elapsed_s()
            try:
                yield
            finally:  # what was refused took its time too
                now_s = self._clock.elapsed_s()
                self._rests_until_s = {who: until_s for who, until_s in self._rests_until_s.items() if until_s > now_s}
                self._rests_until_s[user] = now_s + self._rest_s(now_s - began_s)

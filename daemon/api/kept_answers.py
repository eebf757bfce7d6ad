"""Answers that serve many requests, and who waits while others are made."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from fastapi import HTTPException, Response

from slurm_soda.daemon.clock import Clock

MAX_DETAIL_WAIT_S = 0.25
MAX_DETAILS_OF_USER = 16


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

    def __init__(self, clock: Clock, rest_s: Callable[[float], float], most_waiting: int = 0) -> None:
        """``rest_s`` says how long a user rests, given the time that the answer took; ``most_waiting``: requests of one
        user that may wait or be answered, 0: any number.
        """
        self._clock, self._rest_s, self._most_waiting = clock, rest_s, most_waiting
        self._waiting: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rests_until_s: dict[str, float] = {}

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait for the user's turn, and keep it.

        Raises:
            HTTPException: too many requests of the user wait already.
        """
        if 0 < self._most_waiting <= self._waiting[user]:
            raise HTTPException(429, f"{self._most_waiting} requests of {user} wait already; ask again later")
        self._waiting[user] += 1
        try:
            async with self._turn(user):
                yield
        finally:
            self._waiting -= Counter([user])  # keeps no zeros

    @asynccontextmanager
    async def _turn(self, user: str) -> AsyncIterator[None]:
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


def detail_turns(clock: Clock) -> UserTurns:
    """For answers on one job, its report, cores and pairs: one of a user at a time, of :data:`MAX_DETAILS_OF_USER` that
    wait, and then a rest of as long as it took, :data:`MAX_DETAIL_WAIT_S` at most.
    """
    return UserTurns(clock, lambda took_s: min(took_s, MAX_DETAIL_WAIT_S), MAX_DETAILS_OF_USER)

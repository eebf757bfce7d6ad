"""Who is next in one array: aborted jobs first, then Dominant Resource Fairness between users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from slurm_soda.policies.arrays.requests import Request
from slurm_soda.policies.walk import Refusals

Order = tuple[float, int]
"""Submission and job id."""
Amounts = tuple[int, int]
"""GPUs and cores."""
_Line = list[tuple[Order, int]]
Start = Callable[[Request, int], bool]
"""Try to start a job that asks for this; whether it found room."""


class Lines:
    """Waiting jobs of one array, and what its users hold.

    A user's dominant share is the largest part of the array's GPUs or cores that its jobs of the array hold.
    Jobs of one user that ask for the same stand in one line by submission. Whoever does not fit is passed.
    """

    def __init__(self, totals: Amounts) -> None:
        self.totals = tuple(float(total) if total else float("inf") for total in totals)
        self._held: dict[int, list[int]] = {}
        self._share: dict[int, float] = {}
        self._returning: dict[Request, _Line] = {}
        self._lines: dict[Request, dict[int, _Line]] = {}

    def hold(self, user: int, amounts: Amounts, sign: int = 1) -> None:
        """A user's job begins to hold this, or with -1 ceases to."""
        held = self._held.setdefault(user, [0, 0])
        for at, amount in enumerate(amounts):
            held[at] += sign * amount
        self._share[user] = max(has / total for has, total in zip(held, self.totals, strict=True))

    def share(self, user: int) -> float:
        """Dominant share of a user."""
        return self._share.get(user, 0.0)

    def held(self, user: int) -> tuple[int, ...]:
        """GPUs and cores that a user's jobs hold."""
        return tuple(self._held.get(user, (0, 0)))

    def wait(self, request: Request, user: int, order: Order, handle: int, *, aborted: bool) -> None:
        """A job waits."""
        if aborted:
            line = self._returning.setdefault(request, [])
        else:
            line = self._lines.setdefault(request, {}).setdefault(user, [])
        heappush(line, (order, handle))

    def waiting(self) -> list[Request]:
        """What is asked for by anybody who waits; twice where an aborted job and another one ask for the same."""
        return [*self._returning, *self._lines]

    def fill(self, requests: Iterable[Request], start: Start) -> None:
        """Start whoever fits, of those who ask for one of these; nobody else could.

        Equal shares: the job that was submitted first. Room only shrinks meanwhile, so a request is refused but once.
        """
        wanted = set(requests)
        refused = _Refused()
        self._fill_returning([request for request in self._returning if request in wanted], start, refused)
        users = self._heads(request for request in self._lines if request in wanted)
        heap = [(self.share(user), heads[0][0], user) for user, heads in users.items()]
        heapify(heap)
        while heap:
            _, _, user = heappop(heap)
            heads = users[user]
            _, request = heappop(heads)
            line = self._lines[request][user]
            if refused.cover(request):
                pass
            elif start(request, line[0][1]):
                heappop(line)
                if line:
                    heappush(heads, (line[0][0], request))
                else:
                    self._close(request, user)
            else:
                refused.add(request)
            if heads:
                heappush(heap, (self.share(user), heads[0][0], user))

    def _fill_returning(self, requests: list[Request], start: Start, refused: _Refused) -> None:
        heads = [(self._returning[request][0][0], request) for request in requests]
        heapify(heads)
        while heads:
            _, request = heappop(heads)
            line = self._returning[request]
            if refused.cover(request):
                continue
            if not start(request, line[0][1]):
                refused.add(request)
                continue
            heappop(line)
            if line:
                heappush(heads, (line[0][0], request))
            else:
                del self._returning[request]

    def _heads(self, requests: Iterable[Request]) -> dict[int, list[tuple[Order, Request]]]:
        users: dict[int, list[tuple[Order, Request]]] = {}
        for request in requests:
            for user, line in self._lines[request].items():
                users.setdefault(user, []).append((line[0][0], request))
        for heads in users.values():
            heapify(heads)
        return users

    def _close(self, request: Request, user: int) -> None:
        del self._lines[request][user]
        if not self._lines[request]:
            del self._lines[request]


class _Refused:
    """Requests that found no room: larger ones of no more rights find none either."""

    def __init__(self) -> None:
        self._by_right = (Refusals(), Refusals())

    def cover(self, request: Request) -> bool:
        own, anywhere = self._by_right
        return anywhere.cover(request.shape) or (not request.anywhere and own.cover(request.shape))

    def add(self, request: Request) -> None:
        self._by_right[request.anywhere].add(request.shape)

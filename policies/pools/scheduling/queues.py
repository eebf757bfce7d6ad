"""Who is next in one pool: aborted jobs first, then Dominant Resource Fairness between users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from slurm_soda.policies.engine.placement_pass import RefusedShapes
from slurm_soda.policies.pools.scheduling.pool_requests import PoolRequest

SubmitOrder = tuple[float, int]
"""Submission and job id."""
GpusAndCores = tuple[int, int]
"""GPUs and cores."""
_Queue = list[tuple[SubmitOrder, int]]
TryStart = Callable[[PoolRequest, int], bool]
"""Try to start a job that asks for this; whether it fits now."""


class PoolQueues:
    """Waiting jobs of one pool, and what its users hold.

    A user's dominant share is the largest part of the pool's GPUs or cores that its jobs of the pool hold.
    Jobs of one user that ask for the same stand in one queue by submission. A job that does not fit is passed over.
    """

    def __init__(self, totals: GpusAndCores) -> None:
        self.totals = tuple(float(total) if total else float("inf") for total in totals)
        self._held: dict[int, list[int]] = {}
        self._share: dict[int, float] = {}
        self._returning: dict[PoolRequest, _Queue] = {}
        self._queues: dict[PoolRequest, dict[int, _Queue]] = {}

    def hold(self, user: int, amounts: GpusAndCores, sign: int = 1) -> None:
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

    def wait(self, request: PoolRequest, user: int, order: SubmitOrder, handle: int, *, aborted: bool) -> None:
        """A job waits."""
        if aborted:
            line = self._returning.setdefault(request, [])
        else:
            line = self._queues.setdefault(request, {}).setdefault(user, [])
        heappush(line, (order, handle))

    def withdraw(self, request: PoolRequest, user: int, handle: int) -> None:
        """A job does not wait any more, in whatever place of the queue it is."""
        lines = [(self._returning, request)] if request in self._returning else []
        if user in self._queues.get(request, {}):
            lines.append((self._queues[request], user))  # type: ignore[arg-type]
        for line_of, key in lines:
            line = line_of[key]
            line[:] = [item for item in line if item[1] != handle]
            heapify(line)
            if not line:
                del line_of[key]
        if not self._queues.get(request, True):
            del self._queues[request]

    def waiting(self) -> list[PoolRequest]:
        """What is asked for by anybody who waits; twice where an aborted job and another one ask for the same."""
        return [*self._returning, *self._queues]

    def fill(self, requests: Iterable[PoolRequest], start: TryStart) -> None:
        """Start the jobs that fit, of those with one of these requests; no other job could.

        Equal shares: the job that was submitted first. Free capacity only shrinks meanwhile: a request is refused only once.
        """
        wanted = set(requests)
        refused = _RefusedRequests()
        self._fill_returning([request for request in self._returning if request in wanted], start, refused)
        users = self._heads(request for request in self._queues if request in wanted)
        heap = [(self.share(user), heads[0][0], user) for user, heads in users.items()]
        heapify(heap)
        while heap:
            _, _, user = heappop(heap)
            heads = users[user]
            _, request = heappop(heads)
            line = self._queues[request][user]
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

    def _fill_returning(self, requests: list[PoolRequest], start: TryStart, refused: _RefusedRequests) -> None:
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

    def _heads(self, requests: Iterable[PoolRequest]) -> dict[int, list[tuple[SubmitOrder, PoolRequest]]]:
        users: dict[int, list[tuple[SubmitOrder, PoolRequest]]] = {}
        for request in requests:
            for user, line in self._queues[request].items():
                users.setdefault(user, []).append((line[0][0], request))
        for heads in users.values():
            heapify(heads)
        return users

    def _close(self, request: PoolRequest, user: int) -> None:
        del self._queues[request][user]
        if not self._queues[request]:
            del self._queues[request]


class _RefusedRequests:
    """Requests that did not fit: larger ones that may use no more do not fit either."""

    def __init__(self) -> None:
        self._by_right = (RefusedShapes(), RefusedShapes())

    def cover(self, request: PoolRequest) -> bool:
        own, anywhere = self._by_right
        return anywhere.cover(request.shape) or (not request.anywhere and own.cover(request.shape))

    def add(self, request: PoolRequest) -> None:
        self._by_right[request.anywhere].add(request.shape)

"""Cancel and resubmit resets no attained service: a job inherits that of one cancelled job of its owner, name and GPUs.

Attained service is what a policy such as Tiresias orders jobs by, so a job that is cancelled and submitted anew would
otherwise go before all that have run. The rule is exact and moves no service to anybody else:

- Only a **cancelled** job passes its service on, all of it, what it had inherited itself included. A job that completed,
  failed, ran out of time or memory, or lost its node has had its turn and passes on nothing; nor does one without service.
- Each cancelled job has **one successor at most**, and each job one predecessor. So of a sweep of many jobs with one name,
  as many are set back as were cancelled, each by the service of one.
- A successor was submitted after the cancelled job first ran (a sweep that was submitted at once has none), at most
  :data:`INHERIT_WITHIN_S` after its end, and had not started before that end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

INHERIT_WITHIN_S = 86_400.0
"""Who waits for a day to be new again has waited longer than it gains: our choice."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What a job and its successor have in common; the number of nodes is often Slurm's choice, and different each time."""

    user: str
    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class CancelledService:
    """What a cancelled job leaves."""

    key: int
    """Names the job."""
    identity: JobIdentity
    since_s: float
    """Its first start, or its submission where it never ran."""
    end_s: float
    executed_s: float
    """Run time that counts as attained service."""


@dataclass(frozen=True, slots=True)
class SuccessorCandidate:
    """A job without a predecessor."""

    key: int
    identity: JobIdentity
    submit_s: float
    first_start_s: float
    """Infinite for one that has not run."""


def match_successors(
    cancelled: Iterable[CancelledService], jobs: Iterable[SuccessorCandidate]
) -> dict[int, CancelledService]:
    """Which of these jobs inherit from whom: by the key of the job.

    Jobs choose in the order of their submission, and take the most service that they may inherit: so a short cancelled job
    hides no long one.

    Complexity: O(n log n), also where all have one name.
    """
    services: dict[JobIdentity, list[CancelledService]] = {}
    for service in cancelled:
        if service.executed_s > 0 and service.identity.gpus:
            services.setdefault(service.identity, []).append(service)
    left = {identity: _ServicesLeft(theirs) for identity, theirs in services.items()}
    found: dict[int, CancelledService] = {}
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.key)):
        offered = left.get(job.identity)
        if offered and (chosen := offered.take_most(job)):
            found[job.key] = chosen
    return found


class _ServicesLeft:
    """Services of one identity that nobody has taken, for jobs in the order of their submission.

    A job may take those of an interval of ends. A segment tree over the ends has the most service of each interval.
    """

    def __init__(self, services: Iterable[CancelledService]) -> None:
        self._by_most = sorted(services, key=lambda service: (service.executed_s, service.end_s, -service.key))
        count = len(self._by_most)
        by_end = sorted(range(count), key=lambda rank: self._by_most[rank].end_s)
        self._place = {rank: place for place, rank in enumerate(by_end)}
        self._ends = [self._by_most[rank].end_s for rank in by_end]
        self._last_submits = [end_s + INHERIT_WITHIN_S for end_s in self._ends]
        self._coming = sorted(range(count), key=lambda rank: self._by_most[rank].since_s, reverse=True)
        """Ranks of those that ran first after the last submission."""
        self._tree = [-1] * (2 * count)
        """Largest rank below each node; the leaves are the second half, by end."""

    def take_most(self, job: SuccessorCandidate) -> CancelledService | None:
        """The largest that the job may inherit, which is gone then."""
        while self._coming and self._by_most[self._coming[-1]].since_s <= job.submit_s:
            rank = self._coming.pop()
            self._set(self._place[rank], rank)
        begin, end = bisect_left(self._last_submits, job.submit_s), bisect_right(self._ends, job.first_start_s)
        rank = self._largest(begin, end)
        if rank < 0:
            return None
        self._set(self._place[rank], -1)
        return self._by_most[rank]

    def _set(self, place: int, rank: int) -> None:
        tree, at = self._tree, place + len(self._ends)
        tree[at] = rank
        while at > 1:
            at //= 2
            tree[at] = max(tree[2 * at], tree[2 * at + 1])

    def _largest(self, begin: int, end: int) -> int:
        found = -1
        begin, end = begin + len(self._ends), end + len(self._ends)
        while begin < end:
            if begin % 2:
                found = max(found, self._tree[begin])
                begin += 1
            if end % 2:
                end -= 1
                found = max(found, self._tree[end])
            begin, end = begin // 2, end // 2
        return found

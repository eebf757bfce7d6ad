"""From watching jobs beside each other to knowledge: when a slowdown counts as measured, and of which pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.learned_slowdowns import LearnedSlowdowns

MEASURED_AFTER_S = 60.0
"""So long must two jobs make progress beside each other before their slowdown counts as measured; our choice: tens to
thousands of iterations of the models that were measured."""


class WatchedJob(NamedTuple):
    """A running job, as far as its slowdown tells something."""

    kind: JobKind | None
    """None where nobody can tell it."""
    resumes_s: float
    """It makes progress from then on."""


class _WatchedPair(NamedTuple):
    seen_s: float
    """When it will have been seen."""
    job: int
    turn: int
    """Of the job's co-runners."""
    slowed: JobKind
    other: JobKind


class SlowdownLearner:
    """What is known by now, and what will be once the jobs that run now have been seen beside each other long enough.

    Jobs are numbers. Every change of a job's co-runners begins a turn; what was to be seen in an earlier one is void.
    """

    def __init__(self, known: LearnedSlowdowns, *, observes: bool = True) -> None:
        """``observes``: slowdowns that were seen become known."""
        self.known, self.observes = known, observes
        self._pairs: list[_WatchedPair] = []
        self._turn: dict[int, int] = {}
        self._turns = 0

    def meet(self, job: int, watched: WatchedJob, partners: Sequence[WatchedJob], most: int, now_s: float) -> None:
        """The co-runners of a job have changed.

        Where all of them are of one kind, and there is one on each of its GPUs at most, its slowdown is that of the pair.

        Args:
            job: its number.
            watched: the job.
            partners: those it has now.
            most: co-runners on one of its GPUs.
            now_s: from now on.
        """
        self._turns += 1
        self._turn[job] = self._turns
        kinds = {partner.kind for partner in partners}
        if most != 1 or not self.observes or len(kinds) > 1 or watched.kind is None or None in kinds:
            return
        (other,) = kinds
        if other is None or self.known.has_measured(watched.kind, other):
            return
        begun_s = max(now_s, watched.resumes_s, *(partner.resumes_s for partner in partners))
        heappush(self._pairs, _WatchedPair(begun_s + MEASURED_AFTER_S, job, self._turns, watched.kind, other))

    def leave(self, job: int) -> None:
        """A job runs no longer."""
        self._turn.pop(job, None)

    def observe(self, now_s: float, slowdown: Callable[[int], float]) -> None:
        """Everything that has been seen long enough by now becomes known.

        ``slowdown``: of a job, with the co-runners that it has.
        """
        while self._pairs and self._pairs[0].seen_s <= now_s:
            pair = heappop(self._pairs)
            if self._is_undisturbed(pair):
                self.known = self.known.with_pair(pair.slowed, pair.other, slowdown(pair.job))

    def do_not_fit(self, one: JobKind, other: JobKind) -> None:
        """Two kinds were seen not to fit into the memory of one GPU."""
        self.known = self.known.with_apart(one, other)

    def watched(self) -> Iterator[tuple[float, int]]:
        """When each slowdown that is being watched will have been seen, and of which job."""
        return ((pair.seen_s, pair.job) for pair in self._pairs if self._is_undisturbed(pair))

    def _is_undisturbed(self, pair: _WatchedPair) -> bool:
        """Whether the job runs, and has the co-runners that it had then."""
        return self._turn.get(pair.job) == pair.turn

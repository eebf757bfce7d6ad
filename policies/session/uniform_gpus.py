"""A session over a cluster whose GPUs are all alike and may be split at will: only their number counts.

It decides as the policy's ``decide`` does of one node that has all the GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from slurm_soda.policies.session.preemptible_jobs import PreemptibleJobs
from slurm_soda.policies.session.ranking import INFINITY, JobStart, Ranking, RankKey, SessionJob

_Queue = list[tuple[RankKey, SessionJob]]


class UniformGpuSession:
    """Who runs, kept up to date from event to event.

    Waiting jobs stand in one heap for each number of GPUs, since of two that ask for the same only the first can be
    next. A decision costs O(log n) for each job that starts or leaves, one look at the head of each heap, and for the
    smallest heads a look at the worst-ranked running jobs, as many as hold what the head lacks.

    The caller reports what happens (:meth:`submit`, :meth:`end`), asks :meth:`decide`, carries the answer out on the
    records, and confirms it (:meth:`stopped`, then :meth:`started`).
    """

    def __init__(self, ranking: Ranking, gpus: int) -> None:
        self._ranking = ranking
        self._rules = ranking.rules
        self._tail = PreemptibleJobs(ranking)
        self._free = gpus
        self._queues: dict[int, _Queue] = {}
        self._waits = 0
        self._all = False
        """Room was freed or running jobs changed their order: every head must be looked at."""
        self._newcomers: set[int] = set()
        """Heaps with a new head: all else being as it was, only they can start."""

    def submit(self, job: SessionJob) -> None:
        """A job arrives."""
        queue = self._wait(job)
        if queue[0][1] is job:
            self._newcomers.add(job.gpus)

    def end(self, job: SessionJob) -> None:
        """A running job ended."""
        self._free += job.gpus
        self._all = True
        self._tail.remove(job)

    def stopped(self, job: SessionJob) -> None:
        """A job that :meth:`decide` preempted waits again."""
        job.turn += 1
        self._wait(job)

    def started(self, job: SessionJob) -> None:
        """A job that :meth:`decide` started runs."""
        if self._rules.preemptive:
            self._tail.add(job)

    def adopt(self, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        """Somebody else decided: as if :meth:`decide` had answered this. O(waiting jobs) for each start."""
        for job in preempts:
            self._free += job.gpus
            if job.frozen is not None:
                self._tail.exclude(job)
        for job, _ in starts:
            queue = self._queues[job.gpus if self._rules.skip else 0]
            queue[:] = [item for item in queue if item[1] is not job]
            heapify(queue)
            self._free -= job.gpus
            self._waits -= 1
        self._all = True
        self._newcomers.clear()

    def next_event_s(self) -> float:
        """When the next decision may differ without any event; infinite if nobody waits."""
        return self._tail.next_event_s() if self._waits else INFINITY

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        """Jobs to preempt and jobs to start at this instant, each in the order of the decision."""
        if self._tail.advance(now_s) or self._rules.volatile:
            self._all = True
        starts: list[JobStart] = []
        preempts: list[SessionJob] = []
        if len(self._newcomers) > 1:
            self._all = True  # rank decides among them
        elif self._newcomers and not self._all:
            self._start_newcomers(next(iter(self._newcomers)), starts, now_s)
        if self._all and self._waits:
            preempts = self._placing(starts, now_s)
        self._all = False
        self._newcomers.clear()
        return preempts, starts

    def _wait(self, job: SessionJob) -> _Queue:
        queue = self._queues.setdefault(job.gpus if self._rules.skip else 0, [])
        heappush(queue, (self._ranking.waiting(job), job))
        self._waits += 1
        return queue

    def _start(self, queue: _Queue, starts: list[JobStart]) -> None:
        job = heappop(queue)[1]
        self._free -= job.gpus
        self._waits -= 1
        starts.append((job, ()))

    def _start_newcomers(self, gpus: int, starts: list[JobStart], now_s: float) -> None:
        """Those who fit start: whoever ranks before them found no room even in what they take."""
        queue = self._queues[gpus if self._rules.skip else 0]
        while queue and queue[0][1].gpus <= self._free:
            self._start(queue, starts)
        if queue and self._rules.preemptive and self._tail.victims(queue[0][0], gpus - self._free, now_s):
            self._all = True

    def _placing(self, starts: list[JobStart], now_s: float) -> list[SessionJob]:
        """Heads take their turn by rank, and preempt worse-ranked jobs if need be; these take part at their own rank.

        What is free and what worse-ranked jobs hold only shrinks along the order, so a refusal holds for all that ask
        for as much.
        """
        heads = [(queue[0][0], queue) for queue in self._queues.values() if queue]
        heapify(heads)
        displaced: _Queue = []
        preempts: list[SessionJob] = []
        refused: float = INFINITY
        while heads or displaced:
            if displaced and (not heads or displaced[0][0] < heads[0][0]):
                key, job = heappop(displaced)
                if job.gpus < refused and self._make_room(key, job.gpus, displaced, now_s):
                    self._free -= job.gpus
                    self._tail.insert(job)  # it keeps running: its place was not needed
                else:
                    refused = min(refused, job.gpus)
                    preempts.append(job)
                continue
            key, queue = heappop(heads)
            job = queue[0][1]
            if job.gpus >= refused:
                continue
            if self._make_room(key, job.gpus, displaced, now_s):
                self._start(queue, starts)
                if queue:
                    heappush(heads, (queue[0][0], queue))
            else:
                refused = job.gpus if self._rules.skip else 0
        return preempts

    def _make_room(self, key: RankKey, gpus: int, displaced: _Queue, now_s: float) -> bool:
        if gpus <= self._free:
            return True
        if not self._rules.preemptive:
            return False
        for item in self._tail.victims(key, gpus - self._free, now_s) or ():
            self._tail.exclude(item[1])
            self._free += item[1].gpus
            heappush(displaced, item)
        return gpus <= self._free

"""A session over nodes: what can be decided without looking at a whole snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from slurm_soda.policies.engine.demand import Demand, RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import RefusedShapes, find_too_large
from slurm_soda.policies.session.preemptible_jobs import PreemptibleJobs
from slurm_soda.policies.session.ranking import INFINITY, JobStart, Ranking, RankKey, SessionJob
from slurm_soda.policies.snapshot import NodeTable

_Queue = list[tuple[RankKey, int, SessionJob]]


class NodeSession:
    """Finds out what happens at most events: nothing, or jobs start in what is free.

    :meth:`find_starts` gives up (returns ``None``) where a waiting job might preempt: that takes the policy's ``decide``.
    Waiting jobs stand in one heap for each distinct request; a call costs one look at each heap's head, one search for
    room for each job that starts and for each head that is not covered by a refusal, never a look at all jobs.

    The caller reports every event, and every start and stop, whoever decided it.
    """

    def __init__(self, ranking: Ranking, demand: Demand, nodes: NodeTable) -> None:
        self._ranking, self._rules, self._shapes = ranking, ranking.rules, demand.shapes
        self._tail = PreemptibleJobs(ranking)
        self._free_nodes = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        self._free_gpus = int(nodes.gpus_free[nodes.usable].sum())
        self._too_large: list[bool] = find_too_large(demand.shapes, nodes).tolist()
        self._queues: dict[int, _Queue] = {}
        self._waits = 0
        self._all = False
        self._newcomers: set[int] = set()

    def submit(self, job: SessionJob) -> None:
        """A job arrives; one that the empty cluster could not hold must not hold up others."""
        if self._too_large[job.shape]:
            return
        queue = self._wait(job)
        if _head(queue) is job:
            self._newcomers.add(job.shape)

    def started(self, job: SessionJob) -> None:
        """A job starts on its ``pieces``."""
        self._free_nodes.take(list(job.pieces))
        self._free_gpus -= job.gpus
        self._waits -= 1
        self._tail.add(job)

    def ended(self, job: SessionJob) -> None:
        """A job gave its ``pieces`` back for good."""
        self._free_nodes.give(list(job.pieces))
        self._free_gpus += job.gpus
        self._tail.remove(job)
        self._all = True

    def stopped(self, job: SessionJob) -> None:
        """A job gave its ``pieces`` back and waits again."""
        self.ended(job)
        self._wait(job)

    def changed(self, job: SessionJob, before: Sequence[NodeAllocation]) -> None:
        """A running job has other CPUs than ``before``; nothing is preempted here, so its rank plays no part."""
        self._free_nodes.give(list(before))
        self._free_nodes.take(list(job.pieces))
        self._all |= sum(piece.cpus for piece in job.pieces) < sum(piece.cpus for piece in before)

    def look_at_all(self) -> None:
        """Somebody else decided, for reasons of his own: the next time any waiting job may start."""
        self._all = True

    def next_event_s(self) -> float:
        """When the next decision may differ without any event; infinite if nobody waits."""
        return self._tail.next_event_s() if self._waits else INFINITY

    def find_starts(self, now_s: float) -> list[JobStart] | None:
        """Jobs that start at this instant, all else being as it was; ``None``: ask the policy."""
        if self._tail.advance(now_s) or self._rules.volatile or not self._rules.skip:
            self._all = True
        shapes = list(self._queues) if self._all else sorted(self._newcomers)
        self._all = False
        self._newcomers.clear()
        starts: list[JobStart] = []
        taken: list[tuple[_Queue, tuple[RankKey, int, SessionJob]]] = []
        sure = not self._waits or self._placing(shapes, now_s, starts, taken)
        for queue, item in taken:
            heappush(queue, item)
        for job, pieces in starts:
            self._free_nodes.give(list(pieces))
            self._free_gpus += job.gpus
        return starts if sure else None

    def _wait(self, job: SessionJob) -> _Queue:
        queue = self._queues.setdefault(job.shape, [])
        heappush(queue, (self._ranking.waiting(job), job.turn, job))
        self._waits += 1
        return queue

    def _placing(
        self,
        shapes: list[int],
        now_s: float,
        starts: list[JobStart],
        taken: list[tuple[_Queue, tuple[RankKey, int, SessionJob]]],
    ) -> bool:
        """Heads of these requests take their turn by rank; whether no head may preempt."""
        heads = [(queue[0][0], number) for number in shapes if _head(queue := self._queues[number])]
        heapify(heads)
        refusals = RefusedShapes()
        shut: set[tuple[int, bool]] = set()
        while heads:
            key, number = heappop(heads)
            shape, queue = self._shapes[number], self._queues[number]
            line = (shape.partition, self._rules.apart and shape.wants_gpus)
            if line in shut:
                continue
            pieces = None if refusals.cover(shape) else self._free_nodes.find(shape)
            if pieces is None:
                if self._may_preempt(shape, key, queue[0][2].gpus, now_s):
                    return False
                refusals.add(shape)
                if not self._rules.skip:
                    shut.add(line)
                continue
            job = queue[0][2]
            taken.append((queue, heappop(queue)))
            starts.append((job, tuple(pieces)))
            self._free_nodes.take(pieces)
            self._free_gpus -= job.gpus
            if _head(queue):
                heappush(heads, (queue[0][0], number))
        return True

    def _may_preempt(self, shape: RequestShape, key: RankKey, gpus: int, now_s: float) -> bool:
        """Whether there would be room if all worse-ranked jobs left."""
        if not self._rules.preemptive or not shape.wants_gpus:
            return False
        if self._tail.victims(key, max(gpus - self._free_gpus, 1), now_s) is None:
            return False  # not even if only their number counted
        left: dict[int, list[int]] = {}
        for job in self._tail.behind(key, now_s):
            for node, *amounts in job.pieces:
                left[node] = [a + b for a, b in zip(left.get(node, (0, 0, 0)), amounts, strict=True)]
        return self._free_nodes.would_fit(shape, left)


def _head(queue: _Queue) -> SessionJob | None:
    """The first job that still waits; those that somebody else started are dropped."""
    while queue and queue[0][1] != queue[0][2].turn:
        heappop(queue)
    return queue[0][2] if queue else None

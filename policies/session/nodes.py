"""A session over nodes: what can be decided without looking at a whole snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from slurm_soda.policies.engine.demand import Demand, RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import RefusedShapes, find_too_large
from slurm_soda.policies.session.moves import PossibleMoves
from slurm_soda.policies.session.preemptible_jobs import PreemptibleJobs
from slurm_soda.policies.session.ranking import INFINITY, JobStart, Ranking, RankKey, SessionJob
from slurm_soda.policies.snapshot import NodeTable

_Queue = list[tuple[RankKey, int, SessionJob]]


class NodeSession:
    """Finds out what happens at most events: nothing, or jobs start in what is free.

    :meth:`find_starts` gives up (returns ``None``) where a waiting job might preempt, or others might move for it: that
    takes the policy's ``decide``.
    Waiting jobs stand in one heap for each distinct request. A head that found no room is looked at again once a node has
    more to offer than before, and then only if that node could hold a part of it with all worse-ranked jobs gone. Each such
    head costs a search for room, and never a look at all jobs that wait.

    The caller reports every event, and every start and stop, whoever decided it.
    """

    def __init__(self, ranking: Ranking, demand: Demand, nodes: NodeTable) -> None:
        self._ranking, self._rules, self._shapes = ranking, ranking.rules, demand.shapes
        self._tail = PreemptibleJobs(ranking)
        self._free_nodes = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        self._free_gpus = int(nodes.gpus_free[nodes.usable].sum())
        moves = self._rules.least_move_price_s < INFINITY
        self._moves = PossibleMoves(self._free_nodes, nodes, ranking, demand.shapes) if moves else None
        self._too_large: list[bool] = find_too_large(demand.shapes, nodes).tolist()
        self._queues: dict[int, _Queue] = {}
        self._waits = 0
        self._all = False
        """Any head may start or preempt now."""
        self._freed: set[int] = set()
        """Nodes on which somebody left since heads were looked at."""
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
        if self._moves is not None:
            self._moves.started(job)

    def ended(self, job: SessionJob) -> None:
        """A job gave its ``pieces`` back for good."""
        self._free_nodes.give(list(job.pieces))
        self._free_gpus += job.gpus
        self._tail.remove(job)
        if self._moves is not None:
            self._moves.ended(job)
        self._freed.update(piece.node for piece in job.pieces)

    def stopped(self, job: SessionJob) -> None:
        """A job gave its ``pieces`` back and waits again."""
        self.ended(job)
        self.submit(job)

    def changed(self, job: SessionJob, before: Sequence[NodeAllocation]) -> None:
        """A running job has other CPUs than ``before``; nothing is preempted here, so its rank plays no part."""
        self._free_nodes.give(list(before))
        self._free_nodes.take(list(job.pieces))
        self._all |= sum(piece.cpus for piece in job.pieces) < sum(piece.cpus for piece in before)

    def look_at_all(self) -> None:
        """Somebody else decided, for reasons of his own: the next time any waiting job may start."""
        self._all = True

    def is_too_large(self, job: SessionJob) -> bool:
        """Whether the empty cluster could not hold a job."""
        return self._too_large[job.shape]

    def free_on(self, node: int) -> tuple[int, int, int]:
        """GPUs, CPUs and memory that a node has free."""
        return self._free_nodes.on(node)

    def next_event_s(self) -> float:
        """When the next decision may differ without any event; infinite if nobody waits."""
        return self._tail.next_event_s() if self._waits else INFINITY

    def find_starts(self, now_s: float) -> list[JobStart] | None:
        """Jobs that start at this instant, all else being as it was; ``None``: ask the policy."""
        if self._tail.advance(now_s) or self._rules.volatile or not self._rules.skip:
            self._all = True
        shapes = self._list_open(now_s)
        self._all = False
        self._freed.clear()
        self._newcomers.clear()
        if self._moves is not None:
            self._moves.look_anew()
        starts: list[JobStart] = []
        taken: list[tuple[_Queue, tuple[RankKey, int, SessionJob]]] = []
        sure = not self._waits or self._placing(shapes, now_s, starts, taken)
        for queue, item in taken:
            heappush(queue, item)
        for job, pieces in starts:
            self._free_nodes.give(list(pieces))
            self._free_gpus += job.gpus
        return starts if sure else None

    def _list_open(self, now_s: float) -> list[int]:
        """Requests whose heads may start or preempt, as far as that can be told at a glance."""
        heads = [(number, head) for number, queue in self._queues.items() if (head := _head(queue))]
        if len(heads) < len(self._queues):
            self._queues = {number: self._queues[number] for number, _ in heads}
        if self._all:
            return [number for number, _ in heads]
        return [
            number
            for number, _ in heads
            if number in self._newcomers or any(self._may_help(node, number, now_s) for node in self._freed)
        ]

    def _may_help(self, node: int, number: int, now_s: float) -> bool:
        """Whether a node could hold a part of a request with all gone that rank behind the first who asks for it.

        Elsewhere as little is free, or would be, as when that one found no room: those who run never come to rank behind
        one who waits but when the session says so.
        """
        shape = self._shapes[number]
        gpus, cpus, memory_mib = self._free_nodes.on(node)
        least_gpus, least_cpus, least_memory_mib = shape.least
        if self._rules.preemptive and shape.wants_gpus:
            for job in self._tail.behind_on(node, self._queues[number][0][0], now_s):
                for piece in job.pieces:
                    if piece.node == node:
                        gpus, cpus, memory_mib = gpus + piece.gpus, cpus + piece.cpus, memory_mib + piece.memory_mib
        return gpus >= least_gpus and cpus >= least_cpus and memory_mib >= least_memory_mib

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
        """Heads of these requests take their turn by rank; whether no head may preempt, and nobody may move for any."""
        heads = [(self._queues[number][0][0], number) for number in shapes]
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
        return not self._others_may_move(now_s)

    def _may_preempt(self, shape: RequestShape, key: RankKey, gpus: int, now_s: float) -> bool:
        """Whether there would be room if all worse-ranked jobs left."""
        if not self._rules.preemptive or not shape.wants_gpus:
            return False
        behind = self._tail.behind(key, now_s)
        if sum(job.gpus for job in behind) < max(gpus - self._free_gpus, 1):
            return False  # not even if only their number counted
        left: dict[int, tuple[int, int, int]] = {}
        for job in behind:
            for node, more_gpus, more_cpus, more_mib in job.pieces:
                gpus, cpus, memory_mib = left.get(node, (0, 0, 0))
                left[node] = (gpus + more_gpus, cpus + more_cpus, memory_mib + more_mib)
        return self._free_nodes.would_fit(shape, left)

    def _others_may_move(self, now_s: float) -> bool:
        """Whether it might be worth it that running jobs move so that a head fits that waits on, whichever it is: whoever
        starts, or comes to wait, may make it worth more.
        """
        moves = self._moves
        shapes = [self._shapes[number] for number, queue in self._queues.items() if moves is not None and _head(queue)]
        return moves is not None and any(
            self._wants_moves(shape) and moves.may_gain(shape, self._waits, now_s) for shape in shapes
        )

    def _wants_moves(self, shape: RequestShape) -> bool:
        """Whether enough GPUs are free for a request of those for which others move."""
        return shape.wants_gpus and shape.is_even and self._free_gpus >= shape.gpus * shape.nodes


def _head(queue: _Queue) -> SessionJob | None:
    """The first job that still waits; those that somebody else started are dropped."""
    while queue and queue[0][1] != queue[0][2].turn:
        heappop(queue)
    return queue[0][2] if queue else None

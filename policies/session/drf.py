"""Progressive filling from event to event (Dominant Resource Fairness, without preemption)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from slurm_soda.policies.engine.demand import Demand, RequestColumns
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import RefusedShapes, find_too_large
from slurm_soda.policies.session.ranking import INFINITY, JobStart, SessionJob
from slurm_soda.policies.snapshot import NodeTable

DrfQueueKey = tuple[int, int, bool]
"""User, partition, and whether its jobs want GPUs."""


class DrfSession:
    """Decides as :class:`~slurm_soda.policies.baselines.drf.Drf` does.

    After a decision the first job of no line fits. So after an arrival only a line whose first job is new is looked at, and
    after an end only lines whose first job could use one of the nodes that the ended jobs left.
    """

    def __init__(self, jobs: RequestColumns, demand: Demand, nodes: NodeTable, *, gpus_only: bool) -> None:
        whole = (nodes.gpus,) if gpus_only else (nodes.gpus, nodes.cpus, nodes.memory_mib)
        self._totals = [float(column[nodes.usable].sum()) or INFINITY for column in whole]
        self._asked = [[*asked[: len(whole)]] for asked in _totals_of(jobs, demand)]
        """What a job of each shape adds to its user's share."""
        self._more_cpus: dict[int, int] = {}
        """What running jobs have beyond what they asked for, by job id."""
        self._shapes = demand.shapes
        self._too_large: list[bool] = find_too_large(demand.shapes, nodes).tolist()
        self._free_nodes = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        self._held: dict[int, list[int]] = {}
        self._share: dict[int, float] = {}
        self._lines: dict[DrfQueueKey, deque[SessionJob]] = {}
        self._fresh: set[DrfQueueKey] = set()
        """Lines whose first job has not been refused yet."""
        self._freed: set[int] = set()
        """Nodes that jobs left since the last decision."""

    def submit(self, job: SessionJob) -> None:
        if self._too_large[job.shape]:
            return
        shape = self._shapes[job.shape]
        line = (job.user, shape.partition, shape.wants_gpus)
        queue = self._lines.get(line)
        if queue is None:
            queue = self._lines[line] = deque()
            self._fresh.add(line)
        queue.append(job)

    def end(self, job: SessionJob) -> None:
        self._free_nodes.give(list(job.pieces))
        self._hold(job, -1)
        if more := self._more_cpus.pop(job.job_id, 0):
            self._hold_cpus(job, -more)
        self._freed.update(piece.node for piece in job.pieces)

    def changed(self, job: SessionJob, before: Sequence[NodeAllocation]) -> None:
        """A running job has other CPUs than ``before`` on the same nodes."""
        if tuple(before) == job.pieces:
            return
        self._free_nodes.give(list(before))
        self._free_nodes.take(list(job.pieces))
        more = sum(piece.cpus for piece in job.pieces) - sum(piece.cpus for piece in before)
        if more:
            self._more_cpus[job.job_id] = self._more_cpus.get(job.job_id, 0) + more
            self._hold_cpus(job, more)
            self._freed.update(piece.node for piece in job.pieces)

    def stopped(self, job: SessionJob) -> None:
        """A job that somebody else preempted waits again, in the place of its submission."""
        shape = self._shapes[job.shape]
        line = (job.user, shape.partition, shape.wants_gpus)
        queue = self._lines.setdefault(line, deque())
        at = sum((other.submit_s, other.job_id) < (job.submit_s, job.job_id) for other in queue)
        queue.insert(at, job)
        self._fresh.add(line)

    def started(self, job: SessionJob) -> None:
        """What the job holds was taken when it was decided."""

    def adopt(self, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        """Somebody else decided: as if :meth:`decide` had answered this. O(waiting jobs of the line) for each start."""
        for job in preempts:
            self.end(job)
        for job, pieces in starts:
            shape = self._shapes[job.shape]
            line = (job.user, shape.partition, shape.wants_gpus)
            self._lines[line].remove(job)
            if not self._lines[line]:
                del self._lines[line]
            self._start(job, list(pieces))
        self._fresh = set(self._lines)
        self._freed.clear()

    def next_event_s(self) -> float:
        return INFINITY

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        lines = self._fresh
        if self._freed:
            lines = lines | {line for line, queue in self._lines.items() if self._could_use(queue[0].shape)}
        starts = self._fill(lines) if lines else []
        self._fresh.clear()
        self._freed.clear()
        return [], starts

    def _fill(self, lines: Iterable[DrfQueueKey]) -> list[JobStart]:
        heap = [self._entry(line) for line in lines]
        heapify(heap)
        refusals = RefusedShapes()
        starts: list[JobStart] = []
        while heap:
            known, _, _, line = heappop(heap)
            if known < self._share.get(line[0], 0.0):  # another line of the user has moved on meanwhile
                heappush(heap, self._entry(line))
                continue
            queue = self._lines[line]
            shape = self._shapes[queue[0].shape]
            pieces = None if refusals.cover(shape) else self._free_nodes.find(shape)
            if pieces is None:
                refusals.add(shape)
                continue
            starts.append(self._start(queue.popleft(), pieces))
            if queue:
                heappush(heap, self._entry(line))
            else:
                del self._lines[line]
        return starts

    def _entry(self, line: DrfQueueKey) -> tuple[float, float, int, DrfQueueKey]:
        job = self._lines[line][0]
        return self._share.get(line[0], 0.0), job.submit_s, job.job_id, line

    def _start(self, job: SessionJob, pieces: list[NodeAllocation]) -> JobStart:
        self._free_nodes.take(pieces)
        self._hold(job, 1)
        return job, tuple(pieces)

    def _hold(self, job: SessionJob, sign: int) -> None:
        asked = self._asked[job.shape]
        held = self._held.setdefault(job.user, [0] * len(asked))
        held[:] = [has + sign * amount for has, amount in zip(held, asked, strict=True)]
        self._weigh(job.user)

    def _hold_cpus(self, job: SessionJob, more: int) -> None:
        if len(self._totals) > 1:
            self._held[job.user][1] += more
            self._weigh(job.user)

    def _weigh(self, user: int) -> None:
        self._share[user] = max(has / total for has, total in zip(self._held[user], self._totals, strict=True))

    def _could_use(self, number: int) -> bool:
        """Whether one of the nodes that were left has room for a part of a job of this shape."""
        least = self._shapes[number].least
        return any(all(map(int.__le__, least, self._free_nodes.on(node))) for node in self._freed)


def _totals_of(jobs: RequestColumns, demand: Demand) -> list[tuple[int, int, int]]:
    """GPUs, CPUs and memory over all nodes of each shape; rounded up for one that no job has yet."""
    totals = [
        (
            shape.units if shape.wants_gpus and shape.units else shape.nodes * shape.gpus,
            shape.nodes * shape.cpus,
            shape.nodes * shape.memory_mib,
        )
        for shape in demand.shapes
    ]
    codes, first = np.unique(demand.code, return_index=True)
    columns = (codes, *(column[first] for column in (jobs.gpus, jobs.cpus, jobs.memory_mib)))
    for code, gpus, cpus, memory_mib in zip(*(column.tolist() for column in columns), strict=True):
        totals[code] = (gpus, cpus, memory_mib)
    return totals

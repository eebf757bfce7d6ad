"""Which borrowing jobs are requeued so that a GPU job can start (SODA, Section V-C).

Of all nodes those on which the fewest borrowed GPUs, then cores, are regained; on each the youngest borrowers, less those
that turn out not to be needed. CPU jobs are requeued for every GPU job; small GPU jobs on the large
pool's nodes for large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import NodeAllocation, count_slots, split_over_nodes
from slurm_soda.policies.pools.scheduling.node_usage import JobOnNode
from slurm_soda.policies.pools.scheduling.pool_capacity import PoolCapacity
from slurm_soda.policies.pools.scheduling.pool_requests import PoolRequest, ServingOrder
from slurm_soda.policies.snapshot import BoolColumn, IntColumn


class _NodeCost(NamedTuple):
    """A node and what it costs to free enough on it; the smaller the better."""

    gpus: int
    """GPUs of the jobs that are requeued."""
    cpus: int
    """Cores of the jobs that are requeued."""
    foreign: bool
    """Not one of the pool's own nodes."""
    gpus_free: int
    node: int


class _NodesByCost:
    """Candidate nodes of one request during one decision, by cost; what a node lacks is a lower bound of its cost."""

    def __init__(self, bounds: Iterator[_NodeCost], seen: int) -> None:
        """``bounds`` ascend."""
        self._bounds, self._next, self._made = bounds, next(bounds, None), seen
        self.heap: list[tuple[_NodeCost, bool, int]] = []
        """Costs, whether they are exact, and how many changes of nodes there had been when they were computed."""
        self.seen = seen
        """Number of changes that are taken into account."""

    def pop(self) -> tuple[_NodeCost, bool, int] | None:
        """The least cost or bound."""
        first = self._next
        if first is not None and (not self.heap or first < self.heap[0][0]):
            self._next = next(self._bounds, None)
            return first, False, self._made
        return heappop(self.heap) if self.heap else None


class BorrowerSearch:
    """Finds the borrowers of one GPU job after the other."""

    def __init__(self, capacity: PoolCapacity) -> None:
        self._capacity = capacity
        self._every = np.arange(len(capacity.lent), dtype=np.int64)
        self._masks: dict[tuple[int, int], BoolColumn] = {}
        self._candidates_of: dict[PoolRequest, _NodesByCost] = {}
        self._changed: dict[int, int] = {}
        """Number of each node's last change in this decision, from 1; as far as :attr:`_read` says."""
        self._read = 0

    def begin(self) -> None:
        """A new decision: what was known of the nodes is out of date."""
        self._capacity.changed_nodes.clear()
        self._candidates_of.clear()
        self._changed.clear()
        self._read = 0

    def find(self, request: PoolRequest) -> tuple[list[NodeAllocation], list[JobOnNode]] | None:
        """Places for a job, and the jobs to requeue; ``None``: all borrowers together hold too little."""
        shape = request.shape
        pieces = self._even(request) if shape.is_even else None
        if pieces is None and shape.units:
            obtainable = self._obtainable(request, self._every)
            slots = count_slots(shape, obtainable[:, 0], obtainable[:, 1], obtainable[:, 2])
            pieces = split_over_nodes(shape, np.where(self._mask(shape), slots, 0))
        if pieces is None:
            return None
        victims: dict[int, JobOnNode] = {}
        for piece in pieces:
            for job in self._victims(request, piece.node, (piece.gpus, piece.cpus, piece.memory_mib)):
                victims.setdefault(job.handle, job)
        return pieces, list(victims.values())

    def _obtainable(self, request: PoolRequest, nodes: IntColumn) -> NDArray[np.int64]:
        """What the job could get on each of these nodes; shape (nodes, 3)."""
        capacity, soon = self._capacity, self._capacity.free_capacity.soon
        obtainable = np.stack((soon.gpus[nodes], soon.cpus[nodes], soon.memory_mib[nodes]), axis=1)
        obtainable += capacity.borrowed_by_cpu_jobs[nodes]
        if request.turn == ServingOrder.LARGE:
            obtainable += capacity.borrowed_by_small_jobs[nodes]
        elif not request.anywhere:
            np.minimum(obtainable[:, :2], capacity.small_unused[nodes], out=obtainable[:, :2])
        return obtainable

    def _mask(self, shape: RequestShape) -> BoolColumn:
        key = (shape.partition, shape.gpu_type)
        if key not in self._masks:
            self._masks[key] = self._capacity.free_capacity.classes.mask(shape)
        return self._masks[key]

    def _even(self, request: PoolRequest) -> list[NodeAllocation] | None:
        shape, candidates = request.shape, self._candidates(request)
        best: list[tuple[_NodeCost, bool, int]] = []
        while len(best) < shape.nodes:
            entry = candidates.pop()
            if entry is None:
                break
            offer, exact, made = entry
            if self._changed.get(offer.node, 0) > made:
                continue  # out of date; there is a newer bound of this node, if it is of use at all
            if exact:
                best.append(entry)
            else:
                heappush(candidates.heap, (self._exact(request, offer), True, len(self._capacity.changed_nodes)))
        if len(best) < shape.nodes:
            for entry in best:
                heappush(candidates.heap, entry)
            return None
        return [NodeAllocation(offer.node, shape.gpus, shape.cpus, shape.memory_mib) for offer, _, _ in best]

    def _candidates(self, request: PoolRequest) -> _NodesByCost:
        """The candidate nodes of a request, with new bounds of the nodes that changed since the last call."""
        changed = self._capacity.changed_nodes
        for number in range(self._read, len(changed)):
            self._changed[changed[number]] = number + 1
        self._read = len(changed)
        candidates = self._candidates_of.get(request)
        if candidates is None:
            candidates = self._candidates_of[request] = _NodesByCost(self._bounds(request, self._every), self._read)
            return candidates
        recent = np.array(sorted(set(changed[candidates.seen :])), dtype=np.int64)
        if len(recent):
            for bound in self._bounds(request, recent):
                heappush(candidates.heap, (bound, False, self._read))
            candidates.seen = self._read
        return candidates

    def _exact(self, request: PoolRequest, bound: _NodeCost) -> _NodeCost:
        leaving = self._victims(request, bound.node, (request.shape.gpus, request.shape.cpus, request.shape.memory_mib))
        return bound._replace(gpus=sum(t.gpus for t in leaving), cpus=sum(t.cpus for t in leaving))

    def _bounds(self, request: PoolRequest, nodes: IntColumn) -> Iterator[_NodeCost]:
        """Of those of these nodes that could hold a part of the gang; ascending."""
        shape, soon = request.shape, self._capacity.free_capacity.soon
        obtainable = self._obtainable(request, nodes)
        fits = (obtainable >= (shape.gpus, shape.cpus, shape.memory_mib)).all(axis=1) & self._mask(shape)[nodes]
        nodes = nodes[fits]
        gpus_free = soon.gpus[nodes]
        columns: tuple[IntColumn | BoolColumn, ...] = (
            np.maximum(shape.gpus - gpus_free, 0),
            np.maximum(shape.cpus - soon.cpus[nodes], 0),
            ~self._mask(request.own)[nodes],
            gpus_free,
            nodes,
        )
        order = np.lexsort(columns[::-1])
        return map(_NodeCost._make, zip(*(column[order].tolist() for column in columns), strict=True))

    def _victims(self, request: PoolRequest, node: int, asked: tuple[int, int, int]) -> list[JobOnNode]:
        """The jobs to requeue so that so much is free on a node."""
        capacity = self._capacity
        soon = capacity.free_capacity.soon.on(node)
        lacking = [want - free for want, free in zip(asked, soon, strict=True)]
        leaving: list[JobOnNode] = []
        small_borrowers = capacity.small.borrowers(node) if request.turn == ServingOrder.LARGE else []
        if lacking[0] > 0:
            _let_leave(small_borrowers, lacking, leaving, gpus_only=True)
        _let_leave(capacity.cpu.borrowers(node), lacking, leaving)
        _let_leave([job for job in small_borrowers if job not in leaving], lacking, leaving)
        for job in reversed(leaving.copy()):
            if all(lack + own <= 0 for lack, own in zip(lacking, _amounts(job), strict=True)):
                leaving.remove(job)
                lacking = [lack + own for lack, own in zip(lacking, _amounts(job), strict=True)]
        return leaving


def _let_leave(jobs: list[JobOnNode], lacking: list[int], leaving: list[JobOnNode], *, gpus_only: bool = False) -> None:
    """Let jobs leave in their order until nothing is lacking any more."""
    for job in jobs:
        if (lacking[0] if gpus_only else max(lacking)) <= 0:
            return
        leaving.append(job)
        for at, own in enumerate(_amounts(job)):
            lacking[at] -= own


def _amounts(job: JobOnNode) -> tuple[int, int, int]:
    return job.gpus, job.cpus, job.memory_mib

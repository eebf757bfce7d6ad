"""Who gives back what he borrowed, so that a GPU job can start (SODA, Section V-C).

Of all nodes those on which the fewest borrowed GPUs, then cores, are given back; on each the youngest borrowers, less those
that turn out not to be needed. CPU jobs give back cores to every GPU job, small GPU jobs what they hold on the large
pool's nodes to large ones.
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
    """A node and what it costs to make room on it; the smaller the better."""

    gpus: int
    """GPUs given back."""
    cpus: int
    """Cores given back."""
    foreign: bool
    """Not one of the pool's own nodes."""
    gpus_free: int
    node: int


class _NodesByCost:
    """Nodes for one request during one decision, by what they cost; what a node lacks is a bound of what it costs."""

    def __init__(self, bounds: Iterator[_NodeCost], seen: int) -> None:
        """``bounds`` ascend."""
        self._bounds, self._next, self._made = bounds, next(bounds, None), seen
        self.heap: list[tuple[_NodeCost, bool, int]] = []
        """Offers, whether they are exact, and how often nodes had been touched when they were made."""
        self.seen = seen
        """Touches that have been looked at."""

    def pop(self) -> tuple[_NodeCost, bool, int] | None:
        """The least offer or bound."""
        first = self._next
        if first is not None and (not self.heap or first < self.heap[0][0]):
            self._next = next(self._bounds, None)
            return first, False, self._made
        return heappop(self.heap) if self.heap else None


class BorrowerSearch:
    """Finds the borrowers of one GPU job after the other."""

    def __init__(self, ground: PoolCapacity) -> None:
        self._ground = ground
        self._every = np.arange(len(ground.lent), dtype=np.int64)
        self._masks: dict[tuple[int, int], BoolColumn] = {}
        self._markets: dict[PoolRequest, _NodesByCost] = {}
        self._touched: dict[int, int] = {}
        """Number of each node's last touch in this decision, from 1; as far as :attr:`_read` says."""
        self._read = 0

    def begin(self) -> None:
        """A new decision: what was known of the nodes is out of date."""
        self._ground.touched.clear()
        self._markets.clear()
        self._touched.clear()
        self._read = 0

    def find(self, request: PoolRequest) -> tuple[list[NodeAllocation], list[JobOnNode]] | None:
        """Places for a job, and who must leave them; ``None``: all borrowers together hold too little."""
        shape = request.shape
        pieces = self._even(request) if shape.is_even else None
        if pieces is None and shape.units:
            wide = self._wide(request, self._every)
            slots = count_slots(shape, wide[:, 0], wide[:, 1], wide[:, 2])
            pieces = split_over_nodes(shape, np.where(self._mask(shape), slots, 0))
        if pieces is None:
            return None
        victims: dict[int, JobOnNode] = {}
        for piece in pieces:
            for tenant in self._victims(request, piece.node, (piece.gpus, piece.cpus, piece.memory_mib)):
                victims.setdefault(tenant.handle, tenant)
        return pieces, list(victims.values())

    def _wide(self, request: PoolRequest, nodes: IntColumn) -> NDArray[np.int64]:
        """What each of these nodes could offer the job; shape (nodes, 3)."""
        ground, soon = self._ground, self._ground.free_capacity.soon
        wide = np.stack((soon.gpus[nodes], soon.cpus[nodes], soon.memory_mib[nodes]), axis=1)
        wide += ground.borrowed_by_cpu_jobs[nodes]
        if request.turn == ServingOrder.LARGE:
            wide += ground.borrowed_by_small_jobs[nodes]
        elif not request.anywhere:
            np.minimum(wide[:, :2], ground.small_left[nodes], out=wide[:, :2])
        return wide

    def _mask(self, shape: RequestShape) -> BoolColumn:
        key = (shape.partition, shape.gpu_type)
        if key not in self._masks:
            self._masks[key] = self._ground.free_capacity.classes.mask(shape)
        return self._masks[key]

    def _even(self, request: PoolRequest) -> list[NodeAllocation] | None:
        shape, market = request.shape, self._market(request)
        best: list[tuple[_NodeCost, bool, int]] = []
        while len(best) < shape.nodes:
            entry = market.pop()
            if entry is None:
                break
            offer, exact, made = entry
            if self._touched.get(offer.node, 0) > made:
                continue  # out of date; there is a newer bound of this node, if it is of use at all
            if exact:
                best.append(entry)
            else:
                heappush(market.heap, (self._exact(request, offer), True, len(self._ground.touched)))
        if len(best) < shape.nodes:
            for entry in best:
                heappush(market.heap, entry)
            return None
        return [NodeAllocation(offer.node, shape.gpus, shape.cpus, shape.memory_mib) for offer, _, _ in best]

    def _market(self, request: PoolRequest) -> _NodesByCost:
        """The market of a request, with new bounds of the nodes that were touched since it was last asked for."""
        touched = self._ground.touched
        for number in range(self._read, len(touched)):
            self._touched[touched[number]] = number + 1
        self._read = len(touched)
        market = self._markets.get(request)
        if market is None:
            market = self._markets[request] = _NodesByCost(self._bounds(request, self._every), self._read)
            return market
        recent = np.array(sorted(set(touched[market.seen :])), dtype=np.int64)
        if len(recent):
            for bound in self._bounds(request, recent):
                heappush(market.heap, (bound, False, self._read))
            market.seen = self._read
        return market

    def _exact(self, request: PoolRequest, bound: _NodeCost) -> _NodeCost:
        leaving = self._victims(request, bound.node, (request.shape.gpus, request.shape.cpus, request.shape.memory_mib))
        return bound._replace(gpus=sum(t.gpus for t in leaving), cpus=sum(t.cpus for t in leaving))

    def _bounds(self, request: PoolRequest, nodes: IntColumn) -> Iterator[_NodeCost]:
        """Of those of these nodes that could hold a part of the gang; ascending."""
        shape, soon = request.shape, self._ground.free_capacity.soon
        wide = self._wide(request, nodes)
        fits = (wide >= (shape.gpus, shape.cpus, shape.memory_mib)).all(axis=1) & self._mask(shape)[nodes]
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
        """Who leaves a node so that so much is free on it."""
        ground = self._ground
        soon = ground.free_capacity.soon.on(node)
        lacking = [want - free for want, free in zip(asked, soon, strict=True)]
        leaving: list[JobOnNode] = []
        guests = ground.small.borrowers(node) if request.turn == ServingOrder.LARGE else []
        if lacking[0] > 0:
            _let_leave(guests, lacking, leaving, gpus_only=True)
        _let_leave(ground.cpu.borrowers(node), lacking, leaving)
        _let_leave([guest for guest in guests if guest not in leaving], lacking, leaving)
        for tenant in reversed(leaving.copy()):
            if all(lack + own <= 0 for lack, own in zip(lacking, _amounts(tenant), strict=True)):
                leaving.remove(tenant)
                lacking = [lack + own for lack, own in zip(lacking, _amounts(tenant), strict=True)]
        return leaving


def _let_leave(
    tenants: list[JobOnNode], lacking: list[int], leaving: list[JobOnNode], *, gpus_only: bool = False
) -> None:
    """Let tenants leave in their order until nothing is lacking any more."""
    for tenant in tenants:
        if (lacking[0] if gpus_only else max(lacking)) <= 0:
            return
        leaving.append(tenant)
        for at, own in enumerate(_amounts(tenant)):
            lacking[at] -= own


def _amounts(tenant: JobOnNode) -> tuple[int, int, int]:
    return tenant.gpus, tenant.cpus, tenant.memory_mib

"""One decision over all pools: the large ones first, CPU jobs last, each from its own queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.pools.layout.node_division import PoolDivision
from slurm_soda.policies.pools.scheduling.borrower_search import BorrowerSearch
from slurm_soda.policies.pools.scheduling.node_usage import JobOnNode
from slurm_soda.policies.pools.scheduling.pool_capacity import PoolCapacity
from slurm_soda.policies.pools.scheduling.pool_requests import PoolKey, PoolRequest, ServingOrder
from slurm_soda.policies.pools.scheduling.queues import GpusAndCores, PoolQueues
from slurm_soda.policies.snapshot import NodeTable


@dataclass(frozen=True, slots=True)
class RunningPoolJob:
    """A job that holds places: who it is to its pool, and what it holds."""

    request: PoolRequest
    user: int
    pieces: list[NodeAllocation]
    may_be_requeued: bool
    start_s: float
    job_id: int
    handle: int

    @property
    def amounts(self) -> GpusAndCores:
        """GPUs and cores over all nodes."""
        return sum(piece.gpus for piece in self.pieces), sum(piece.cpus for piece in self.pieces)

    def on(self, pieces: list[NodeAllocation]) -> RunningPoolJob:
        """The same job with other places."""
        return replace(self, pieces=pieces)

    def by_node(self) -> list[tuple[int, JobOnNode]]:
        """What it holds on each of its nodes; empty for a large job, which borrows nowhere."""
        if self.request.turn == ServingOrder.LARGE:
            return []
        first = (self.may_be_requeued, self.start_s, self.job_id, self.handle)
        return [(piece.node, JobOnNode(*first, piece.gpus, piece.cpus, piece.memory_mib)) for piece in self.pieces]


@dataclass(slots=True)
class PoolDecision:
    """What came of one decision, by handles in the order in which it was found."""

    starts: list[tuple[int, JobPlacement]] = field(default_factory=list)
    aborts: dict[int, int] = field(default_factory=dict)
    """The job that is aborted, and the one it is aborted for."""


class PoolScheduler:
    """The pools and the capacity that they share."""

    def __init__(self, capacity: PoolCapacity, totals: Callable[[PoolKey], GpusAndCores]) -> None:
        self.capacity = capacity
        self.pools: dict[PoolKey, PoolQueues] = {}
        self._totals = totals
        self._borrowers = BorrowerSearch(capacity)

    def queues(self, pool: PoolKey) -> PoolQueues:
        """The queues of a pool."""
        if pool not in self.pools:
            self.pools[pool] = PoolQueues(self._totals(pool))
        return self.pools[pool]

    def run(
        self,
        wanted: Callable[[PoolKey], Iterable[PoolRequest]],
        held_by: Callable[[int], RunningPoolJob],
        start: Callable[[PoolRequest, int, JobPlacement], RunningPoolJob],
    ) -> PoolDecision:
        """Serve the pools.

        Args:
            wanted: requests of a pool that might fit, when it is served.
            held_by: what an abortable running job holds.
            start: called for each job that gets places; returns it as one that holds them.
        """
        decision = PoolDecision()
        self._borrowers.begin()

        def record_start(request: PoolRequest, handle: int, claim: JobPlacement | None) -> bool:
            if claim is None:
                return False
            held = start(request, handle, claim)
            self.capacity.take(claim, held.by_node())
            self.queues(request.pool).hold(held.user, held.amounts)
            decision.starts.append((handle, claim))
            return True

        def alone(request: PoolRequest, handle: int) -> bool:
            return record_start(request, handle, self.capacity.find_unshared(request))

        def anywhere(request: PoolRequest, handle: int) -> bool:
            claim = self.capacity.find(request)
            if claim is None and request.turn != ServingOrder.CPU:
                claim = self._reclaim(request, handle, decision, held_by)
            return record_start(request, handle, claim)

        # What belongs to the small pool alone serves its own jobs before large ones use it.
        for pool in sorted(self.pools):
            if pool[0] == ServingOrder.SMALL:
                self.pools[pool].fill(wanted(pool), alone)
        for pool in sorted(self.pools):
            self.pools[pool].fill(wanted(pool), anywhere)
        return decision

    def _reclaim(
        self, request: PoolRequest, handle: int, decision: PoolDecision, held_by: Callable[[int], RunningPoolJob]
    ) -> JobPlacement | None:
        found = self._borrowers.find(request)
        if found is None:
            return None
        pieces, victims = found
        for job in victims:
            victim = held_by(job.handle)
            decision.aborts[job.handle] = handle
            self.capacity.vacate(victim.pieces, victim.by_node())
            self.queues(victim.request.pool).hold(victim.user, victim.amounts, -1)
        return JobPlacement(pieces, at_once=False)


def make_pool_totals(nodes: NodeTable, division: PoolDivision) -> Callable[[PoolKey], GpusAndCores]:
    """GPUs and cores of each pool: those of its usable nodes, and of the nodes' cores those that are its own."""

    def totals(pool: PoolKey) -> GpusAndCores:
        turn, any_type, gpu_type = pool
        mask = nodes.usable.copy()
        cores = division.cpu_cores
        if turn != ServingOrder.CPU:
            mask &= division.large if turn == ServingOrder.LARGE else division.small
            mask &= np.bool_(any_type) | (nodes.gpu_type == gpu_type)
            cores = nodes.cpus - cores
        return int(nodes.gpus[mask].sum()), int(cores[mask].sum())

    return totals

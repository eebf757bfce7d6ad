"""One decision over all pools: the large ones first, CPU jobs last, each by its own lines."""

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

    def tenants(self) -> list[tuple[int, JobOnNode]]:
        """It on each of its nodes; none of a large job, which is nowhere a guest."""
        if self.request.turn == ServingOrder.LARGE:
            return []
        first = (self.may_be_requeued, self.start_s, self.job_id, self.handle)
        return [(piece.node, JobOnNode(*first, piece.gpus, piece.cpus, piece.memory_mib)) for piece in self.pieces]


@dataclass(slots=True)
class PoolDecision:
    """What came of one decision, by handles in the order in which it was found."""

    starts: list[tuple[int, JobPlacement]] = field(default_factory=list)
    aborts: dict[int, int] = field(default_factory=dict)
    """Who leaves, and for whom."""


class PoolScheduler:
    """Pools and the ground they share."""

    def __init__(self, ground: PoolCapacity, totals: Callable[[PoolKey], GpusAndCores]) -> None:
        self.ground = ground
        self.pools: dict[PoolKey, PoolQueues] = {}
        self._totals = totals
        self._give_back = BorrowerSearch(ground)

    def lines(self, pool: PoolKey) -> PoolQueues:
        """The lines of a pool."""
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
            wanted: requests of a pool that might find room, when its turn has come.
            held_by: what an abortable running job holds.
            start: told of each job that gets places; returns it as one that holds them.
        """
        decision = PoolDecision()
        self._give_back.begin()

        def seat(request: PoolRequest, handle: int, claim: JobPlacement | None) -> bool:
            if claim is None:
                return False
            held = start(request, handle, claim)
            self.ground.take(claim, held.tenants())
            self.lines(request.pool).hold(held.user, held.amounts)
            decision.starts.append((handle, claim))
            return True

        def alone(request: PoolRequest, handle: int) -> bool:
            return seat(request, handle, self.ground.find_in_small_pool(request))

        def anywhere(request: PoolRequest, handle: int) -> bool:
            claim = self.ground.find(request)
            if claim is None and request.turn != ServingOrder.CPU:
                claim = self._reclaim(request, handle, decision, held_by)
            return seat(request, handle, claim)

        # What is the small pool's and nobody else's serves its own jobs before large ones use it.
        for pool in sorted(self.pools):
            if pool[0] == ServingOrder.SMALL:
                self.pools[pool].fill(wanted(pool), alone)
        for pool in sorted(self.pools):
            self.pools[pool].fill(wanted(pool), anywhere)
        return decision

    def _reclaim(
        self, request: PoolRequest, handle: int, decision: PoolDecision, held_by: Callable[[int], RunningPoolJob]
    ) -> JobPlacement | None:
        found = self._give_back.find(request)
        if found is None:
            return None
        pieces, victims = found
        for tenant in victims:
            victim = held_by(tenant.handle)
            decision.aborts[tenant.handle] = handle
            self.ground.vacate(victim.pieces, victim.tenants())
            self.lines(victim.request.pool).hold(victim.user, victim.amounts, -1)
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

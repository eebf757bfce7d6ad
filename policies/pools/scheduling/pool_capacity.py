"""The nodes as pools see them: what is free, what each pool owns of it, and what borrowers would give back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slurm_soda.policies.engine.free_capacity import FreeCapacity, JobPlacement
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation
from slurm_soda.policies.pools.layout.node_division import PoolDivision
from slurm_soda.policies.pools.scheduling.availability import NodeAvailability
from slurm_soda.policies.pools.scheduling.node_usage import JobOnNode, PoolNodeUsage
from slurm_soda.policies.pools.scheduling.pool_requests import PoolRequest, ServingOrder

_Amounts = tuple[int, int, int]
_Allocations = list[NodeAllocation]
_JobsOnNodes = Iterable[tuple[int, JobOnNode]]
"""A job on each node where a pool counts it."""
_NOTHING = (0, 0, 0)


class PoolCapacity:
    """Free resources and tenants, kept in step.

    Attributes:
        room: what is free now, and once the jobs that leave have left.
        cpu: CPU jobs by node.
        small: small GPU jobs on the large pool's nodes.
        cores_back: cores and MiB that borrowing CPU jobs hold on each node.
        gpus_back: GPUs, cores and MiB that small jobs hold as the large pool's guests.
        small_left: GPUs and cores of its own that the small pool's jobs do not hold on each node.
        touched: nodes as they changed; whoever reads it clears it.
        offers: kept from event to event; ``None`` where one decision is all there is.
    """

    def __init__(
        self, free_capacity: FreeCapacity, division: PoolDivision, tenants: _JobsOnNodes, *, offers: bool = False
    ) -> None:
        """``tenants``: of each node that they hold something on."""
        self.free_capacity, self.lent = free_capacity, division.lent.tolist()
        nodes = len(self.lent)
        self.cpu = PoolNodeUsage(np.zeros(nodes, dtype=np.int64), division.cpu_cores)
        self.small = PoolNodeUsage(division.small_gpus, division.small_cpus)
        self.borrowed_by_cpu_jobs = np.zeros((nodes, 3), dtype=np.int64)
        self.borrowed_by_small_jobs = np.zeros((nodes, 3), dtype=np.int64)
        self.small_left = np.stack((division.small_gpus, division.small_cpus), axis=1)
        self.touched: list[int] = []
        self.offers = NodeAvailability(self.lent) if offers else None
        self._states: dict[int, tuple[_Amounts | int, ...]] = {}
        self._vacated: set[int] = set()
        counted: set[int] = set()
        for node, tenant in tenants:
            self._enter(node, tenant)
            counted.add(node)
        now = free_capacity.now
        self._cpu_home = FreeNodes(
            free_capacity.classes, now.gpus, np.minimum(now.cpus, division.cpu_cores), now.memory_mib
        )
        self._small_home = FreeNodes(
            free_capacity.classes,
            np.minimum(now.gpus, division.small_gpus),
            np.minimum(now.cpus, division.small_cpus),
            now.memory_mib,
        )
        for node in range(nodes) if offers else counted:
            self._refresh(node)

    def find_in_small_pool(self, request: PoolRequest) -> JobPlacement | None:
        """Room for a small job in what is the small pool's and nobody else's, free now."""
        pieces = self._small_home.find(request.on_divided_nodes)
        return None if pieces is None else JobPlacement(pieces, at_once=True)

    def find(self, request: PoolRequest) -> JobPlacement | None:
        """Room for a job without anybody being aborted, its own pool's first."""
        free_capacity, shape = self.free_capacity, request.shape
        if request.turn == ServingOrder.CPU:
            pieces = self._cpu_home.find(shape)
            if pieces is None and request.anywhere:
                pieces = free_capacity.now.find(shape)
            return None if pieces is None else JobPlacement(pieces, at_once=True)
        pieces = (
            self._small_home.find(shape) if request.turn == ServingOrder.SMALL else free_capacity.now.find(request.own)
        )
        if pieces is None and request.anywhere:
            pieces = free_capacity.now.find(shape)
        if pieces is not None:
            return JobPlacement(pieces, at_once=True)
        if free_capacity.soon is free_capacity.now:
            return None
        pieces = free_capacity.soon.find(request.own)
        if pieces is None and request.anywhere:
            pieces = free_capacity.soon.find(shape)
        return None if pieces is None else JobPlacement(pieces, at_once=False)

    def take(self, claim: JobPlacement, tenants: _JobsOnNodes) -> None:
        """A job gets its places."""
        self.free_capacity.hold(claim)
        for node, tenant in tenants:
            self._enter(node, tenant)
        self.refresh(claim.pieces)

    def vacate(self, pieces: _Allocations, tenants: _JobsOnNodes) -> None:
        """A running job will leave."""
        self.free_capacity.vacate(pieces)
        self._depart(tenants)
        self.refresh(pieces)
        self._vacated.update(piece.node for piece in pieces)

    def settle(self) -> None:
        """All who were to leave have left."""
        self.free_capacity.settle()
        for node in self._vacated:
            self._refresh(node)
        self._vacated.clear()

    def give(self, pieces: _Allocations, tenants: _JobsOnNodes) -> None:
        """A running job has left; nobody else is about to."""
        self.free_capacity.now.give(pieces)
        self._depart(tenants)
        self.refresh(pieces)

    def resize(
        self, old: _Allocations, old_tenants: _JobsOnNodes, new: _Allocations, new_tenants: _JobsOnNodes
    ) -> None:
        """A running job holds more or less on the nodes where it is; nobody is about to leave."""
        self.free_capacity.now.give(old)
        self._depart(old_tenants)
        self.free_capacity.now.take(new)
        for node, tenant in new_tenants:
            self._enter(node, tenant)
        self.refresh(new)

    def refresh(self, pieces: Iterable[NodeAllocation]) -> None:
        """Something changed on these nodes."""
        for piece in pieces:
            self._refresh(piece.node)

    def _enter(self, node: int, tenant: JobOnNode) -> None:
        if not tenant.gpus:
            self.cpu.add(node, tenant)
        elif self.lent[node]:
            self.small.add(node, tenant)

    def _depart(self, tenants: _JobsOnNodes) -> None:
        for node, tenant in tenants:
            if not tenant.gpus:
                self.cpu.remove(node, tenant)
            elif self.lent[node]:
                self.small.remove(node, tenant)

    def _refresh(self, node: int) -> None:
        now, soon = self.free_capacity.now.on(node), self.free_capacity.soon.on(node)
        gpus, cpus, memory_mib = now
        own_cores = self.cpu.left(node)[1]
        self._cpu_home.put(node, gpus, max(min(cpus, own_cores), 0), memory_mib)
        own_gpus, own_cpus = self.small.left(node)
        self._small_home.put(node, max(min(gpus, own_gpus), 0), max(min(cpus, own_cpus), 0), memory_mib)
        cores_back, gpus_back = _total_held(self.cpu.borrowers(node)), _total_held(self.small.borrowers(node))
        state = (now, soon, own_cores, own_gpus, own_cpus, cores_back, gpus_back)
        if state == self._states.get(node):
            return
        self._states[node] = state
        self.touched.append(node)
        self.small_left[node] = (own_gpus, own_cpus)
        self.borrowed_by_cpu_jobs[node], self.borrowed_by_small_jobs[node] = cores_back, gpus_back
        if self.offers is not None:
            self.offers.set(node, now, soon, (own_cores, own_gpus, own_cpus), (cores_back, gpus_back))


def _total_held(tenants: list[JobOnNode]) -> _Amounts:
    if not tenants:
        return _NOTHING
    return (
        sum(tenant.gpus for tenant in tenants),
        sum(tenant.cpus for tenant in tenants),
        sum(tenant.memory_mib for tenant in tenants),
    )

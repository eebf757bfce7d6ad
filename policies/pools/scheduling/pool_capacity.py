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
    """Free resources and the jobs on each node, kept consistent.

    Attributes:
        free_capacity: what is free now, and once the jobs that are leaving have left.
        cpu: CPU jobs by node.
        small: small GPU jobs on the large pool's nodes.
        borrowed_by_cpu_jobs: GPUs (0), cores and MiB that borrowing CPU jobs hold on each node.
        borrowed_by_small_jobs: GPUs, cores and MiB that small jobs borrow of the large pool on each node.
        small_unused: GPUs and cores of its own that the small pool's jobs do not hold on each node.
        changed_nodes: nodes in the order of their changes; whoever reads it clears it.
        availability: kept from event to event; ``None`` where there is only one decision.
    """

    def __init__(
        self,
        free_capacity: FreeCapacity,
        division: PoolDivision,
        jobs: _JobsOnNodes,
        *,
        with_availability: bool = False,
    ) -> None:
        """``jobs``: one entry for each node on which a job holds something."""
        self.free_capacity, self.lent = free_capacity, division.lent.tolist()
        nodes = len(self.lent)
        self.cpu = PoolNodeUsage(np.zeros(nodes, dtype=np.int64), division.cpu_cores)
        self.small = PoolNodeUsage(division.small_gpus, division.small_cpus)
        self.borrowed_by_cpu_jobs = np.zeros((nodes, 3), dtype=np.int64)
        self.borrowed_by_small_jobs = np.zeros((nodes, 3), dtype=np.int64)
        self.small_unused = np.stack((division.small_gpus, division.small_cpus), axis=1)
        self.changed_nodes: list[int] = []
        self.availability = NodeAvailability(self.lent) if with_availability else None
        self._states: dict[int, tuple[_Amounts | int, ...]] = {}
        self._vacated: set[int] = set()
        counted: set[int] = set()
        for node, job in jobs:
            self._enter(node, job)
            counted.add(node)
        now = free_capacity.now
        self._cpu_share = FreeNodes(
            free_capacity.classes, now.gpus, np.minimum(now.cpus, division.cpu_cores), now.memory_mib
        )
        self._small_share = FreeNodes(
            free_capacity.classes,
            np.minimum(now.gpus, division.small_gpus),
            np.minimum(now.cpus, division.small_cpus),
            now.memory_mib,
        )
        for node in range(nodes) if with_availability else counted:
            self._refresh(node)

    def find_unshared(self, request: PoolRequest) -> JobPlacement | None:
        """Places for a small job in what belongs to the small pool alone, free now."""
        pieces = self._small_share.find(request.on_divided_nodes)
        return None if pieces is None else JobPlacement(pieces, at_once=True)

    def find(self, request: PoolRequest) -> JobPlacement | None:
        """Places for a job without an abort, those of its own pool first."""
        free_capacity, shape = self.free_capacity, request.shape
        if request.turn == ServingOrder.CPU:
            pieces = self._cpu_share.find(shape)
            if pieces is None and request.anywhere:
                pieces = free_capacity.now.find(shape)
            return None if pieces is None else JobPlacement(pieces, at_once=True)
        pieces = (
            self._small_share.find(shape) if request.turn == ServingOrder.SMALL else free_capacity.now.find(request.own)
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

    def take(self, claim: JobPlacement, jobs: _JobsOnNodes) -> None:
        """A job gets its places."""
        self.free_capacity.hold(claim)
        for node, job in jobs:
            self._enter(node, job)
        self.refresh(claim.pieces)

    def vacate(self, pieces: _Allocations, jobs: _JobsOnNodes) -> None:
        """A running job will leave."""
        self.free_capacity.vacate(pieces)
        self._depart(jobs)
        self.refresh(pieces)
        self._vacated.update(piece.node for piece in pieces)

    def settle(self) -> None:
        """All jobs that were to leave have left."""
        self.free_capacity.settle()
        for node in self._vacated:
            self._refresh(node)
        self._vacated.clear()

    def give(self, pieces: _Allocations, jobs: _JobsOnNodes) -> None:
        """A running job has left; no other is about to."""
        self.free_capacity.now.give(pieces)
        self._depart(jobs)
        self.refresh(pieces)

    def resize(self, old: _Allocations, old_jobs: _JobsOnNodes, new: _Allocations, new_jobs: _JobsOnNodes) -> None:
        """A running job holds more or less on the nodes where it is; no job is about to leave."""
        self.free_capacity.now.give(old)
        self._depart(old_jobs)
        self.free_capacity.now.take(new)
        for node, job in new_jobs:
            self._enter(node, job)
        self.refresh(new)

    def refresh(self, pieces: Iterable[NodeAllocation]) -> None:
        """Something changed on these nodes."""
        for piece in pieces:
            self._refresh(piece.node)

    def _enter(self, node: int, job: JobOnNode) -> None:
        if not job.gpus:
            self.cpu.add(node, job)
        elif self.lent[node]:
            self.small.add(node, job)

    def _depart(self, jobs: _JobsOnNodes) -> None:
        for node, job in jobs:
            if not job.gpus:
                self.cpu.remove(node, job)
            elif self.lent[node]:
                self.small.remove(node, job)

    def _refresh(self, node: int) -> None:
        now, soon = self.free_capacity.now.on(node), self.free_capacity.soon.on(node)
        gpus, cpus, memory_mib = now
        own_cores = self.cpu.left(node)[1]
        self._cpu_share.put(node, gpus, max(min(cpus, own_cores), 0), memory_mib)
        own_gpus, own_cpus = self.small.left(node)
        self._small_share.put(node, max(min(gpus, own_gpus), 0), max(min(cpus, own_cpus), 0), memory_mib)
        cores_back, gpus_back = _total_held(self.cpu.borrowers(node)), _total_held(self.small.borrowers(node))
        state = (now, soon, own_cores, own_gpus, own_cpus, cores_back, gpus_back)
        if state == self._states.get(node):
            return
        self._states[node] = state
        self.changed_nodes.append(node)
        self.small_unused[node] = (own_gpus, own_cpus)
        self.borrowed_by_cpu_jobs[node], self.borrowed_by_small_jobs[node] = cores_back, gpus_back
        if self.availability is not None:
            self.availability.set(node, now, soon, (own_cores, own_gpus, own_cpus), (cores_back, gpus_back))


def _total_held(jobs: list[JobOnNode]) -> _Amounts:
    if not jobs:
        return _NOTHING
    return (
        sum(job.gpus for job in jobs),
        sum(job.cpus for job in jobs),
        sum(job.memory_mib for job in jobs),
    )

"""The nodes as arrays see them: what is free, what each array owns of it, and what borrowers would give back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slurm_soda.policies.arrays.division import Division
from slurm_soda.policies.arrays.offers import Offers
from slurm_soda.policies.arrays.requests import Request, Turn
from slurm_soda.policies.arrays.tenants import Tenant, Tenants
from slurm_soda.policies.placement import NodePool, Piece
from slurm_soda.policies.room import Claim, Room

_Amounts = tuple[int, int, int]
_Places = list[Piece]
_Tenancy = Iterable[tuple[int, Tenant]]
"""A job on each node where an array counts it."""
_NOTHING = (0, 0, 0)


class Ground:
    """Free resources and tenants, kept in step.

    Attributes:
        room: what is free now, and once the jobs that leave have left.
        cpu: CPU jobs by node.
        small: small GPU jobs on the large array's nodes.
        cores_back: cores and MiB that borrowing CPU jobs hold on each node.
        gpus_back: GPUs, cores and MiB that small jobs hold as the large array's guests.
        small_left: GPUs and cores of its own that the small array's jobs do not hold on each node.
        touched: nodes as they changed; whoever reads it clears it.
        offers: kept from event to event; ``None`` where one decision is all there is.
    """

    def __init__(self, room: Room, division: Division, tenants: _Tenancy, *, offers: bool = False) -> None:
        """``tenants``: of each node that they hold something on."""
        self.room, self.lent = room, division.lent.tolist()
        nodes = len(self.lent)
        self.cpu = Tenants(np.zeros(nodes, dtype=np.int64), division.cpu_cores)
        self.small = Tenants(division.small_gpus, division.small_cpus)
        self.cores_back = np.zeros((nodes, 3), dtype=np.int64)
        self.gpus_back = np.zeros((nodes, 3), dtype=np.int64)
        self.small_left = np.stack((division.small_gpus, division.small_cpus), axis=1)
        self.touched: list[int] = []
        self.offers = Offers(self.lent) if offers else None
        self._states: dict[int, tuple[_Amounts | int, ...]] = {}
        self._vacated: set[int] = set()
        counted: set[int] = set()
        for node, tenant in tenants:
            self._enter(node, tenant)
            counted.add(node)
        now = room.now
        self._cpu_home = NodePool(room.classes, now.gpus, np.minimum(now.cpus, division.cpu_cores), now.memory_mib)
        self._small_home = NodePool(
            room.classes,
            np.minimum(now.gpus, division.small_gpus),
            np.minimum(now.cpus, division.small_cpus),
            now.memory_mib,
        )
        for node in range(nodes) if offers else counted:
            self._refresh(node)

    def find_alone(self, request: Request) -> Claim | None:
        """Room for a small job in what is the small array's and nobody else's, free now."""
        pieces = self._small_home.find(request.divided)
        return None if pieces is None else Claim(pieces, at_once=True)

    def find(self, request: Request) -> Claim | None:
        """Room for a job without anybody being aborted, its own array's first."""
        room, shape = self.room, request.shape
        if request.turn == Turn.CPU:
            pieces = self._cpu_home.find(shape)
            if pieces is None and request.anywhere:
                pieces = room.now.find(shape)
            return None if pieces is None else Claim(pieces, at_once=True)
        pieces = self._small_home.find(shape) if request.turn == Turn.SMALL else room.now.find(request.own)
        if pieces is None and request.anywhere:
            pieces = room.now.find(shape)
        if pieces is not None:
            return Claim(pieces, at_once=True)
        if room.soon is room.now:
            return None
        pieces = room.soon.find(request.own)
        if pieces is None and request.anywhere:
            pieces = room.soon.find(shape)
        return None if pieces is None else Claim(pieces, at_once=False)

    def take(self, claim: Claim, tenants: _Tenancy) -> None:
        """A job gets its places."""
        self.room.hold(claim)
        for node, tenant in tenants:
            self._enter(node, tenant)
        self.refresh(claim.pieces)

    def vacate(self, pieces: _Places, tenants: _Tenancy) -> None:
        """A running job will leave."""
        self.room.vacate(pieces)
        self._depart(tenants)
        self.refresh(pieces)
        self._vacated.update(piece.node for piece in pieces)

    def settle(self) -> None:
        """All who were to leave have left."""
        self.room.settle()
        for node in self._vacated:
            self._refresh(node)
        self._vacated.clear()

    def give(self, pieces: _Places, tenants: _Tenancy) -> None:
        """A running job has left; nobody else is about to."""
        self.room.now.give(pieces)
        self._depart(tenants)
        self.refresh(pieces)

    def resize(self, old: _Places, old_tenants: _Tenancy, new: _Places, new_tenants: _Tenancy) -> None:
        """A running job holds more or less on the nodes where it is; nobody is about to leave."""
        self.room.now.give(old)
        self._depart(old_tenants)
        self.room.now.take(new)
        for node, tenant in new_tenants:
            self._enter(node, tenant)
        self.refresh(new)

    def refresh(self, pieces: Iterable[Piece]) -> None:
        """Something changed on these nodes."""
        for piece in pieces:
            self._refresh(piece.node)

    def _enter(self, node: int, tenant: Tenant) -> None:
        if not tenant.gpus:
            self.cpu.add(node, tenant)
        elif self.lent[node]:
            self.small.add(node, tenant)

    def _depart(self, tenants: _Tenancy) -> None:
        for node, tenant in tenants:
            if not tenant.gpus:
                self.cpu.remove(node, tenant)
            elif self.lent[node]:
                self.small.remove(node, tenant)

    def _refresh(self, node: int) -> None:
        now, soon = self.room.now.on(node), self.room.soon.on(node)
        gpus, cpus, memory_mib = now
        own_cores = self.cpu.left(node)[1]
        self._cpu_home.put(node, gpus, max(min(cpus, own_cores), 0), memory_mib)
        own_gpus, own_cpus = self.small.left(node)
        self._small_home.put(node, max(min(gpus, own_gpus), 0), max(min(cpus, own_cpus), 0), memory_mib)
        cores_back, gpus_back = _sum(self.cpu.borrowers(node)), _sum(self.small.borrowers(node))
        state = (now, soon, own_cores, own_gpus, own_cpus, cores_back, gpus_back)
        if state == self._states.get(node):
            return
        self._states[node] = state
        self.touched.append(node)
        self.small_left[node] = (own_gpus, own_cpus)
        self.cores_back[node], self.gpus_back[node] = cores_back, gpus_back
        if self.offers is not None:
            self.offers.set(node, now, soon, (own_cores, own_gpus, own_cpus), (cores_back, gpus_back))


def _sum(tenants: list[Tenant]) -> _Amounts:
    if not tenants:
        return _NOTHING
    return (
        sum(tenant.gpus for tenant in tenants),
        sum(tenant.cpus for tenant in tenants),
        sum(tenant.memory_mib for tenant in tenants),
    )

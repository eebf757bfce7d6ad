"""The nodes as arrays see them: what is free, what each array owns of it, and what borrowers would give back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from slurm_soda.policies.arrays.division import Division
from slurm_soda.policies.arrays.requests import Request, Turn
from slurm_soda.policies.arrays.tenants import Tenant, Tenants
from slurm_soda.policies.placement import NodePool, Piece
from slurm_soda.policies.room import Claim, Room

_Amounts = tuple[int, int, int]
_NOTHING = (0, 0, 0)


class Ground:
    """Free resources and tenants, kept in step.

    Attributes:
        room: what is free now, and once the jobs that leave have left.
        cpu: CPU jobs by node.
        small: small GPU jobs on the large array's nodes.
        cores_back: cores and MiB that borrowing CPU jobs hold on each node.
        gpus_back: GPUs, cores and MiB that small jobs hold as the large array's guests.
        grown: nodes on which somebody may find more than before; whoever reads it clears it.
    """

    def __init__(self, room: Room, division: Division, tenants: Iterable[tuple[int, Tenant]]) -> None:
        """``tenants``: of each node that they hold something on."""
        self.room, self.lent = room, division.lent.tolist()
        nodes = len(self.lent)
        self.cpu = Tenants(np.zeros(nodes, dtype=np.int64), division.cpu_cores)
        self.small = Tenants(division.small_gpus, division.small_cpus)
        self.cores_back = np.zeros((nodes, 3), dtype=np.int64)
        self.gpus_back = np.zeros((nodes, 3), dtype=np.int64)
        self.grown: set[int] = set()
        self._vacated: set[int] = set()
        for node, tenant in tenants:
            self._enter(node, tenant)
        now = room.now
        self._cpu_home = NodePool(room.classes, now.gpus, np.minimum(now.cpus, division.cpu_cores), now.memory_mib)
        self._small_home = NodePool(
            room.classes,
            np.minimum(now.gpus, division.small_gpus),
            np.minimum(now.cpus, division.small_cpus),
            now.memory_mib,
        )
        self._offers: list[tuple[int, ...]] = [()] * nodes
        for node in range(nodes):
            self._refresh(node)
        self.grown.clear()

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

    def take(self, claim: Claim, tenants: Iterable[tuple[int, Tenant]]) -> None:
        """A job gets its places."""
        self.room.hold(claim)
        for node, tenant in tenants:
            self._enter(node, tenant)
        self.refresh(claim.pieces)

    def vacate(self, pieces: list[Piece], tenants: Iterable[tuple[int, Tenant]]) -> None:
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

    def give(self, pieces: list[Piece], tenants: Iterable[tuple[int, Tenant]]) -> None:
        """A running job has left; nobody else is about to."""
        self.room.now.give(pieces)
        self._depart(tenants)
        self.refresh(pieces)

    def could_use(self, request: Request, node: int) -> bool:
        """Whether a job might find its part on a node, aborts included. May say yes in vain, never no."""
        offer, (gpus, cpus, memory_mib) = self._offers[node], request.part
        if request.turn == Turn.CPU:
            return offer[2] >= memory_mib and offer[1 if request.anywhere else 3] >= cpus
        if request.turn == Turn.LARGE:
            return offer[8] >= gpus and offer[9] >= cpus and offer[10] >= memory_mib
        if offer[0] < gpus or offer[6] < cpus or offer[7] < memory_mib:
            return False
        return request.anywhere or not self.lent[node] or (offer[4] >= gpus and offer[5] >= cpus)

    def refresh(self, pieces: Iterable[Piece]) -> None:
        """Something changed on these nodes."""
        for piece in pieces:
            self._refresh(piece.node)

    def _enter(self, node: int, tenant: Tenant) -> None:
        if not tenant.gpus:
            self.cpu.add(node, tenant)
        elif self.lent[node]:
            self.small.add(node, tenant)

    def _depart(self, tenants: Iterable[tuple[int, Tenant]]) -> None:
        for node, tenant in tenants:
            if not tenant.gpus:
                self.cpu.remove(node, tenant)
            elif self.lent[node]:
                self.small.remove(node, tenant)

    def _refresh(self, node: int) -> None:
        gpus, cpus, memory_mib = self.room.now.on(node)
        own_cores = self.cpu.left(node)[1]
        self._cpu_home.put(node, gpus, max(min(cpus, own_cores), 0), memory_mib)
        own_gpus, own_cpus = self.small.left(node)
        self._small_home.put(node, max(min(gpus, own_gpus), 0), max(min(cpus, own_cpus), 0), memory_mib)
        soon_gpus, soon_cpus, soon_mib = self.room.soon.on(node)
        _, cores, cores_mib = _sum(self.cpu.borrowers(node))
        guest_gpus, guest_cpus, guest_mib = _sum(self.small.borrowers(node))
        offer = (
            soon_gpus, cpus, memory_mib, min(cpus, own_cores), own_gpus, own_cpus, soon_cpus + cores,
            soon_mib + cores_mib, soon_gpus + guest_gpus, soon_cpus + cores + guest_cpus,
            soon_mib + cores_mib + guest_mib,
        )  # fmt: skip
        before = self._offers[node]
        if offer != before:
            self._offers[node] = offer
            if any(map(int.__gt__, offer, before)):
                self.grown.add(node)
            self.cores_back[node] = (0, cores, cores_mib)
            self.gpus_back[node] = (guest_gpus, guest_cpus, guest_mib)


def _sum(tenants: list[Tenant]) -> _Amounts:
    if not tenants:
        return _NOTHING
    return (
        sum(tenant.gpus for tenant in tenants),
        sum(tenant.cpus for tenant in tenants),
        sum(tenant.memory_mib for tenant in tenants),
    )

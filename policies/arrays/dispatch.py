"""One decision over all arrays: the large ones first, CPU jobs last, each by its own lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.arrays.division import Division
from slurm_soda.policies.arrays.giveback import GiveBack
from slurm_soda.policies.arrays.ground import Ground
from slurm_soda.policies.arrays.lines import Amounts, Lines
from slurm_soda.policies.arrays.requests import Array, Request, Turn
from slurm_soda.policies.arrays.tenants import Tenant
from slurm_soda.policies.placement import Piece
from slurm_soda.policies.room import Claim
from slurm_soda.policies.snapshot import NodeTable


@dataclass(frozen=True, slots=True)
class Held:
    """A job that holds places: who it is to its array, and what it holds."""

    request: Request
    user: int
    pieces: list[Piece]
    abortable: bool
    start_s: float
    job_id: int
    handle: int

    @property
    def amounts(self) -> Amounts:
        """GPUs and cores over all nodes."""
        return sum(piece.gpus for piece in self.pieces), sum(piece.cpus for piece in self.pieces)

    def on(self, pieces: list[Piece]) -> Held:
        """The same job with other places."""
        return replace(self, pieces=pieces)

    def tenants(self) -> list[tuple[int, Tenant]]:
        """It on each of its nodes; none of a large job, which is nowhere a guest."""
        if self.request.turn == Turn.LARGE:
            return []
        first = (self.abortable, self.start_s, self.job_id, self.handle)
        return [(piece.node, Tenant(*first, piece.gpus, piece.cpus, piece.memory_mib)) for piece in self.pieces]


@dataclass(slots=True)
class Decision:
    """What came of one decision, by handles in the order in which it was found."""

    starts: list[tuple[int, Claim]] = field(default_factory=list)
    aborts: dict[int, int] = field(default_factory=dict)
    """Who leaves, and for whom."""


class Dispatch:
    """Arrays and the ground they share."""

    def __init__(self, ground: Ground, totals: Callable[[Array], Amounts]) -> None:
        self.ground = ground
        self.arrays: dict[Array, Lines] = {}
        self._totals = totals
        self._give_back = GiveBack(ground)

    def lines(self, array: Array) -> Lines:
        """The lines of an array."""
        if array not in self.arrays:
            self.arrays[array] = Lines(self._totals(array))
        return self.arrays[array]

    def run(
        self,
        wanted: Callable[[Array], Iterable[Request]],
        held_by: Callable[[int], Held],
        start: Callable[[Request, int, Claim], Held],
    ) -> Decision:
        """Serve the arrays.

        Args:
            wanted: requests of an array that might find room, when its turn has come.
            held_by: what an abortable running job holds.
            start: told of each job that gets places; returns it as one that holds them.
        """
        decision = Decision()
        self._give_back.begin()

        def seat(request: Request, handle: int, claim: Claim | None) -> bool:
            if claim is None:
                return False
            held = start(request, handle, claim)
            self.ground.take(claim, held.tenants())
            self.lines(request.array).hold(held.user, held.amounts)
            decision.starts.append((handle, claim))
            return True

        def alone(request: Request, handle: int) -> bool:
            return seat(request, handle, self.ground.find_alone(request))

        def anywhere(request: Request, handle: int) -> bool:
            claim = self.ground.find(request)
            if claim is None and request.turn != Turn.CPU:
                claim = self._reclaim(request, handle, decision, held_by)
            return seat(request, handle, claim)

        # What is the small array's and nobody else's serves its own jobs before large ones use it.
        for array in sorted(self.arrays):
            if array[0] == Turn.SMALL:
                self.arrays[array].fill(wanted(array), alone)
        for array in sorted(self.arrays):
            self.arrays[array].fill(wanted(array), anywhere)
        return decision

    def _reclaim(
        self, request: Request, handle: int, decision: Decision, held_by: Callable[[int], Held]
    ) -> Claim | None:
        found = self._give_back.find(request)
        if found is None:
            return None
        pieces, victims = found
        for tenant in victims:
            victim = held_by(tenant.handle)
            decision.aborts[tenant.handle] = handle
            self.ground.vacate(victim.pieces, victim.tenants())
            self.lines(victim.request.array).hold(victim.user, victim.amounts, -1)
        return Claim(pieces, at_once=False)


def totals_of(nodes: NodeTable, division: Division) -> Callable[[Array], Amounts]:
    """GPUs and cores of each array: those of its usable nodes, and of the nodes' cores those that are its own."""

    def totals(array: Array) -> Amounts:
        turn, any_type, gpu_type = array
        mask = nodes.usable.copy()
        cores = division.cpu_cores
        if turn != Turn.CPU:
            mask &= division.large if turn == Turn.LARGE else division.small
            mask &= np.bool_(any_type) | (nodes.gpu_type == gpu_type)
            cores = nodes.cpus - cores
        return int(nodes.gpus[mask].sum()), int(cores[mask].sum())

    return totals

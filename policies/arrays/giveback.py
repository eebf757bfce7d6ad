"""Who gives back what he borrowed, so that a GPU job can start (SODA, Section V-C).

Of all nodes those on which the fewest borrowed GPUs, then cores, are given back; on each the youngest borrowers, less those
that turn out not to be needed. CPU jobs give back cores to every GPU job, small GPU jobs what they hold on the large
array's nodes to large ones.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from slurm_soda.policies.arrays.ground import Ground
from slurm_soda.policies.arrays.requests import Request, Turn
from slurm_soda.policies.arrays.tenants import Tenant
from slurm_soda.policies.demand import Shape
from slurm_soda.policies.placement import Piece, pieces_over, slots_of
from slurm_soda.policies.snapshot import BoolColumn, IntColumn


class _Offer(NamedTuple):
    """A node and what it costs to make room on it; the smaller the better."""

    gpus: int
    """GPUs given back."""
    cpus: int
    """Cores given back."""
    foreign: bool
    """Not one of the array's own nodes."""
    gpus_free: int
    node: int


class GiveBack:
    """Finds the borrowers of one GPU job after the other."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._masks: dict[tuple[int, int], BoolColumn] = {}

    def find(self, request: Request) -> tuple[list[Piece], list[Tenant]] | None:
        """Places for a job, and who must leave them; ``None``: all borrowers together hold too little."""
        shape, wide = request.shape, self._wide(request)
        pieces = self._even(request, wide) if shape.is_even else None
        if pieces is None and shape.units:
            slots = slots_of(shape, wide[:, 0], wide[:, 1], wide[:, 2])
            pieces = pieces_over(shape, np.where(self._mask(shape), slots, 0))
        if pieces is None:
            return None
        victims: dict[int, Tenant] = {}
        for piece in pieces:
            for tenant in self._victims(request, piece.node, (piece.gpus, piece.cpus, piece.memory_mib)):
                victims.setdefault(tenant.handle, tenant)
        return pieces, list(victims.values())

    def _wide(self, request: Request) -> NDArray[np.int64]:
        """What each node could offer the job; shape (nodes, 3)."""
        ground, soon = self._ground, self._ground.room.soon
        wide = np.stack((soon.gpus, soon.cpus, soon.memory_mib), axis=1) + ground.cores_back
        if request.turn == Turn.LARGE:
            return wide + ground.gpus_back
        if not request.anywhere:
            for node in np.flatnonzero(ground.lent).tolist():
                wide[node, :2] = np.minimum(wide[node, :2], ground.small.left(node))
        return wide

    def _mask(self, shape: Shape) -> BoolColumn:
        key = (shape.partition, shape.gpu_type)
        if key not in self._masks:
            self._masks[key] = self._ground.room.classes.mask(shape)
        return self._masks[key]

    def _even(self, request: Request, wide: NDArray[np.int64]) -> list[Piece] | None:
        shape, soon = request.shape, self._ground.room.soon
        fits = (wide >= (shape.gpus, shape.cpus, shape.memory_mib)).all(axis=1)
        nodes = np.flatnonzero(fits & self._mask(shape))
        if len(nodes) < shape.nodes:
            return None
        best: list[_Offer] = []
        gpus_lacking = np.maximum(shape.gpus - soon.gpus[nodes], 0)
        cpus_lacking = np.maximum(shape.cpus - soon.cpus[nodes], 0)
        foreign = ~self._mask(request.own)[nodes]
        columns: tuple[IntColumn | BoolColumn, ...] = (gpus_lacking, cpus_lacking, foreign, soon.gpus[nodes], nodes)
        order = np.lexsort(columns[::-1])
        for at in zip(*(column[order].tolist() for column in columns), strict=True):
            bound = _Offer(*at)
            if len(best) == shape.nodes and bound >= best[-1]:
                break  # every further node costs at least as much
            asked = (shape.gpus, shape.cpus, shape.memory_mib)
            leaving = self._victims(request, bound.node, asked)
            insort(best, bound._replace(gpus=sum(t.gpus for t in leaving), cpus=sum(t.cpus for t in leaving)))
            del best[shape.nodes :]
        return [Piece(offer.node, shape.gpus, shape.cpus, shape.memory_mib) for offer in best]

    def _victims(self, request: Request, node: int, asked: tuple[int, int, int]) -> list[Tenant]:
        """Who leaves a node so that so much is free on it."""
        ground = self._ground
        soon = ground.room.soon.on(node)
        lacking = [want - free for want, free in zip(asked, soon, strict=True)]
        leaving: list[Tenant] = []
        guests = ground.small.borrowers(node) if request.turn == Turn.LARGE else []
        if lacking[0] > 0:
            _ask(guests, lacking, leaving, gpus_only=True)
        _ask(ground.cpu.borrowers(node), lacking, leaving)
        _ask([guest for guest in guests if guest not in leaving], lacking, leaving)
        for tenant in reversed(leaving.copy()):
            if all(lack + own <= 0 for lack, own in zip(lacking, _held(tenant), strict=True)):
                leaving.remove(tenant)
                lacking = [lack + own for lack, own in zip(lacking, _held(tenant), strict=True)]
        return leaving


def _ask(tenants: list[Tenant], lacking: list[int], leaving: list[Tenant], *, gpus_only: bool = False) -> None:
    """Let tenants leave in their order until nothing is lacking any more."""
    for tenant in tenants:
        if (lacking[0] if gpus_only else max(lacking)) <= 0:
            return
        leaving.append(tenant)
        for at, own in enumerate(_held(tenant)):
            lacking[at] -= own


def _held(tenant: Tenant) -> tuple[int, int, int]:
    return tenant.gpus, tenant.cpus, tenant.memory_mib

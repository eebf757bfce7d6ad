"""Room on the cluster at two moments: now, and once the jobs that leave have left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState


class JobPlacement(NamedTuple):
    """The places that a waiting job got in this decision."""

    pieces: list[NodeAllocation]
    at_once: bool
    """All of it is free now; otherwise some of it is still held by jobs that leave."""


class FreeCapacity:
    """Free resources, less the claims made so far.

    ``soon`` counts what completing and preempted jobs still hold as free. A claim on it reserves what is free now on
    the same nodes only as far as it needs to: a node offers at once the lesser of what is free now and what is left
    once everybody has moved. As long as nobody leaves the two are one pool.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        nodes, jobs = snapshot.nodes, snapshot.jobs_as_they_leave
        self.classes = NodeGroups(nodes)
        self.now = FreeNodes(self.classes, nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        self.soon = self.now
        self._free = self._copy_of_now()
        """What is free now less only the claims on it, kept once somebody leaves."""
        for row in np.flatnonzero(jobs.state == JobState.COMPLETING).tolist():
            self.vacate(list_allocations(jobs, row))

    def find(self, shape: RequestShape) -> JobPlacement | None:
        """Room for a gang now, or else soon, or else ``None``; takes nothing."""
        pieces = self.now.find(shape)
        if pieces is not None:
            return JobPlacement(pieces, at_once=True)
        if self.soon is self.now:
            return None
        pieces = self.soon.find(shape)
        return None if pieces is None else JobPlacement(pieces, at_once=False)

    def hold(self, claim: JobPlacement) -> None:
        """Carry out a claim that :meth:`find` returned, or that fits once its victims are vacated."""
        self.soon.take(claim.pieces)
        if self.soon is not self.now:
            self._free_up(claim, -1)
            self._offer(claim.pieces)

    def undo(self, claim: JobPlacement) -> None:
        """Take a claim back."""
        self.soon.give(claim.pieces)
        if self.soon is not self.now:
            self._free_up(claim, 1)
            self._offer(claim.pieces)

    def vacate(self, pieces: list[NodeAllocation]) -> None:
        """A job will leave these places."""
        if self.soon is self.now:
            self.soon = self.now.copy()
            self._free = self._copy_of_now()
        self.soon.give(pieces)
        self._offer(pieces)

    def reoccupy(self, pieces: list[NodeAllocation]) -> None:
        """The job stays after all; the inverse of :meth:`vacate`."""
        self.soon.take(pieces)
        self._offer(pieces)

    def settle(self) -> None:
        """Everybody who was to leave has left."""
        self.now = self.soon

    def is_free_now(self, pieces: list[NodeAllocation]) -> bool:
        """Whether these very places are free and nobody's claim."""
        return _has(self.now, pieces)

    def is_free_soon(self, pieces: list[NodeAllocation]) -> bool:
        """Whether these very places are free once everybody has moved."""
        return _has(self.soon, pieces)

    def _copy_of_now(self) -> list[memoryview]:
        return [column.copy().data for column in (self.now.gpus, self.now.cpus, self.now.memory_mib)]

    def _free_up(self, claim: JobPlacement, sign: int) -> None:
        if claim.at_once:
            for node, *amounts in claim.pieces:
                for column, amount in zip(self._free, amounts, strict=True):
                    column[node] += sign * amount

    def _offer(self, pieces: list[NodeAllocation]) -> None:
        free_gpus, free_cpus, free_memory_mib = self._free
        for node, *_ in pieces:
            gpus, cpus, memory_mib = self.soon.on(node)
            self.now.put(
                node, min(free_gpus[node], gpus), min(free_cpus[node], cpus), min(free_memory_mib[node], memory_mib)
            )


def _has(free: FreeNodes, pieces: list[NodeAllocation]) -> bool:
    return all(
        free.gpus[p.node] >= p.gpus and free.cpus[p.node] >= p.cpus and free.memory_mib[p.node] >= p.memory_mib
        for p in pieces
    )

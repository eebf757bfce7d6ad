"""What jobs ask for, and what they may use: of their own array's, or of everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from slurm_soda.policies.arrays.division import Division
from slurm_soda.policies.arrays.kinds import ArrayKind, array_of
from slurm_soda.policies.demand import Shape
from slurm_soda.policies.placement import NodeClasses, NodePool
from slurm_soda.policies.snapshot import NodeTable


class Turn(IntEnum):
    """Arrays in the order in which they are served; the numbers are those of ``JobNotes.queue``."""

    LARGE = 0
    SMALL = 1
    CPU = 2


TURNS = {ArrayKind.LARGE: Turn.LARGE, ArrayKind.SMALL: Turn.SMALL, ArrayKind.CPU: Turn.CPU}


Array = tuple[int, bool, int]
"""One array for each kind (:class:`Turn`) and GPU type, of jobs of any type after the others (True); arrays are served in
ascending order."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A shape with the rights of the job that asks for it; :class:`Requests` makes each once."""

    code: int
    """Number of the shape."""
    anywhere: bool
    """The job may use what another array owns."""
    array: Array
    """Whose users share with each other."""
    shape: Shape
    """On all nodes of the job's partition."""
    own: Shape
    """On its array's nodes among them."""
    divided: Shape
    """On the nodes that are not several arrays'."""
    part: tuple[int, int, int]
    """GPUs, cores and MiB without which a node is of no use to it."""
    total: tuple[int, int]
    """GPUs and cores over all nodes."""

    @property
    def turn(self) -> int:
        """Kind of its array, a :class:`Turn`."""
        return self.array[0]


class Requests:
    """All requests of a run, made once for each shape and right."""

    def __init__(self, shapes: Sequence[Shape], nodes: NodeTable, division: Division) -> None:
        """``nodes`` have the columns of :func:`~slurm_soda.policies.arrays.division.with_arrays`."""
        self._shapes = shapes
        self._partitions = nodes.in_partition.shape[1] // 4
        every = NodeClasses(nodes, np.ones(len(nodes), dtype=np.bool_))
        self._cpu = NodePool(every, nodes.gpus, division.cpu_cores, nodes.memory_mib)
        self._small = NodePool(every, division.small_gpus, division.small_cpus, nodes.memory_mib)
        self._known: dict[tuple[int, bool], Request] = {}
        self._too_wide: dict[int, bool] = {}

    def of(self, code: int, *, may_borrow: bool) -> Request:
        """The request of a job of this shape; ``may_borrow``: it can be aborted, and has not been often enough."""
        known = self._known.get((code, may_borrow))
        if known is None:
            known = self._known[code, may_borrow] = self._make(code, may_borrow)
        return known

    def _make(self, code: int, may_borrow: bool) -> Request:
        shape = self._shapes[code]
        gpus = (shape.units or shape.nodes * shape.gpus) if shape.wants_gpus else 0
        turn = TURNS[array_of(gpus)]
        anywhere = turn == Turn.LARGE or may_borrow or self._is_too_wide(code, turn)
        own = shape if turn == Turn.CPU else self._among(shape, 1 if turn == Turn.LARGE else 2)
        divided = self._among(shape, 3)
        total = (gpus, shape.nodes * shape.cpus)
        array = (int(turn), shape.gpu_type < 0, shape.gpu_type)
        return Request(code, anywhere, array, shape, own, divided, shape.least, total)

    def _among(self, shape: Shape, part: int) -> Shape:
        """The shape on a part of its partition's nodes, if there is such a partition."""
        return shape._replace(partition=part * self._partitions + shape.partition) if shape.partition >= 0 else shape

    def _is_too_wide(self, code: int, turn: Turn) -> bool:
        """Whether its array could not hold it on an empty cluster: then it may use all nodes, or it would wait for ever."""
        if code not in self._too_wide:
            whole = self._cpu if turn == Turn.CPU else self._small
            self._too_wide[code] = whole.find(self._shapes[code]) is None
        return self._too_wide[code]

"""What jobs ask for, and what they may use: of their own pool's, or of everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.pools.kinds import PoolKind, choose_pool_kind
from slurm_soda.policies.pools.layout.node_division import PoolDivision
from slurm_soda.policies.snapshot import NodeTable


class ServingOrder(IntEnum):
    """Pools in the order in which they are served; the numbers are those of ``JobNotes.queue``."""

    LARGE = 0
    SMALL = 1
    CPU = 2


SERVING_ORDERS = {
    PoolKind.LARGE: ServingOrder.LARGE,
    PoolKind.SMALL: ServingOrder.SMALL,
    PoolKind.CPU: ServingOrder.CPU,
}


PoolKey = tuple[int, bool, int]
"""One pool for each kind (:class:`ServingOrder`) and GPU type, of jobs of any type after the others (True); pools are served
in ascending order."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolRequest:
    """A shape with the rights of the job that asks for it; :class:`PoolRequests` makes each once."""

    code: int
    """Number of the shape."""
    anywhere: bool
    """The job may use what another pool owns."""
    pool: PoolKey
    """Whose users share with each other."""
    shape: RequestShape
    """On all nodes of the job's partition."""
    own: RequestShape
    """On its pool's nodes among them."""
    on_divided_nodes: RequestShape
    """On the nodes that are not several pools'."""
    part: tuple[int, int, int]
    """GPUs, cores and MiB without which a node is of no use to it."""
    total: tuple[int, int]
    """GPUs and cores over all nodes."""

    @property
    def turn(self) -> int:
        """Kind of its pool, a :class:`ServingOrder`."""
        return self.pool[0]


class PoolRequests:
    """All requests of a run, made once for each shape and right."""

    def __init__(self, shapes: Sequence[RequestShape], nodes: NodeTable, division: PoolDivision) -> None:
        """``nodes`` have the columns of :func:`~slurm_soda.policies.pools.layout.node_division.add_pool_columns`."""
        self._shapes = shapes
        self._partitions = nodes.in_partition.shape[1] // 4
        every = NodeGroups(nodes, np.ones(len(nodes), dtype=np.bool_))
        self._cpu = FreeNodes(every, nodes.gpus, division.cpu_cores, nodes.memory_mib)
        self._small = FreeNodes(every, division.small_gpus, division.small_cpus, nodes.memory_mib)
        self._known: dict[tuple[int, bool], PoolRequest] = {}
        self._too_large_for_pool: dict[int, bool] = {}

    def of(self, code: int, *, may_borrow: bool) -> PoolRequest:
        """The request of a job of this shape; ``may_borrow``: it can be aborted, and has been less often than allowed."""
        known = self._known.get((code, may_borrow))
        if known is None:
            known = self._known[code, may_borrow] = self._make(code, may_borrow)
        return known

    def _make(self, code: int, may_borrow: bool) -> PoolRequest:
        shape = self._shapes[code]
        gpus = (shape.units or shape.nodes * shape.gpus) if shape.wants_gpus else 0
        turn = SERVING_ORDERS[choose_pool_kind(gpus)]
        anywhere = turn == ServingOrder.LARGE or may_borrow or self._is_too_large_for_pool(code, turn)
        own = shape if turn == ServingOrder.CPU else self._among(shape, 1 if turn == ServingOrder.LARGE else 2)
        divided = self._among(shape, 3)
        total = (gpus, shape.nodes * shape.cpus)
        pool = (int(turn), shape.gpu_type < 0, shape.gpu_type)
        return PoolRequest(code, anywhere, pool, shape, own, divided, shape.least, total)

    def _among(self, shape: RequestShape, part: int) -> RequestShape:
        """The shape on a part of its partition's nodes, if there is such a partition."""
        return shape._replace(partition=part * self._partitions + shape.partition) if shape.partition >= 0 else shape

    def _is_too_large_for_pool(self, code: int, turn: ServingOrder) -> bool:
        """Whether its pool could not hold it on an empty cluster: then it may use all nodes, or it would wait for ever."""
        if code not in self._too_large_for_pool:
            whole = self._cpu if turn == ServingOrder.CPU else self._small
            self._too_large_for_pool[code] = whole.find(self._shapes[code]) is None
        return self._too_large_for_pool[code]

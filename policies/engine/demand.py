"""What jobs ask of nodes: every job's request reduced to one of a few shapes.

Thousands of jobs ask for the same thing; a decision searches for places once per shape, not once per job.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn

ANY_GPU_TYPE = -1
ANY_NODE = -1
NO_SUCH_NAME = -2
"""A GPU type or partition that no node has: nothing fits."""


class RequestShape(NamedTuple):
    """One request: ``nodes`` nodes with ``gpus``, ``cpus`` and ``memory_mib`` on each.

    ``units`` > 0 says that any other split will do too: that many GPUs (CPUs for a job without GPUs) over at least
    ``nodes`` nodes, with ``unit_cpus`` and ``unit_memory_mib`` beside each. Such a request may be bound to ``most_nodes``
    nodes (0: any number), or meant to fill holes: the smallest ones that add up are taken.
    """

    partition: int
    gpu_type: int
    nodes: int
    gpus: int
    cpus: int
    memory_mib: int
    units: int
    unit_cpus: int
    unit_memory_mib: int
    wants_gpus: bool
    most_nodes: int = 0
    fills_holes: bool = False
    node_set: int = ANY_NODE
    """Column of the node table's sets of nodes."""
    whole_nodes: bool = False
    """Nothing else may run on its nodes."""
    least_cpus: int = 0
    """CPUs without which a node will not do, whatever its share is."""

    @property
    def kind(self) -> tuple[int, ...]:
        """Only shapes of one kind can be compared by :attr:`size`."""
        return (
            self.partition,
            self.gpu_type,
            self.units > 0,
            self.wants_gpus,
            self.most_nodes,
            self.fills_holes,
            self.node_set,
            self.whole_nodes,
        )

    @property
    def is_even(self) -> bool:
        """The same share on each of exactly ``nodes`` nodes is one of the splits that will do."""
        return not self.units or not self.wants_gpus or self.gpus * self.nodes == self.units

    def with_cpus(self, cpus: int) -> RequestShape:
        """The request of a GPU job for other CPUs over all its nodes."""
        unit = -(-cpus // self.units) if self.units else 0
        return self._replace(cpus=-(-cpus // self.nodes), unit_cpus=unit)

    @property
    def least(self) -> tuple[int, int, int]:
        """GPUs, CPUs and memory without which a node is of no use to it."""
        if self.units:
            return int(self.wants_gpus), self.unit_cpus, self.unit_memory_mib
        return self.gpus, self.cpus, self.memory_mib

    @property
    def size(self) -> tuple[int, ...]:
        """If a shape does not fit, neither does one of its kind that is at least as large in every part."""
        return (
            self.nodes,
            self.gpus,
            self.cpus,
            self.memory_mib,
            self.units,
            self.unit_cpus,
            self.unit_memory_mib,
            self.least_cpus,
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """The shape of every job: ``shapes[code[row]]``."""

    code: IntColumn
    shapes: tuple[RequestShape, ...]


class RequestColumns(Protocol):
    """What jobs ask for, as columns; each has the meaning that it has in a ``JobTable``."""

    @property
    def partition(self) -> IntColumn: ...
    @property
    def partitions(self) -> tuple[str, ...]: ...
    @property
    def gpu_type(self) -> IntColumn: ...
    @property
    def gpu_types(self) -> tuple[str, ...]: ...
    @property
    def gpus(self) -> IntColumn: ...
    @property
    def nodes(self) -> IntColumn: ...
    @property
    def gpus_per_node(self) -> IntColumn: ...
    @property
    def cpus(self) -> IntColumn: ...
    @property
    def memory_mib(self) -> IntColumn: ...


def group_snapshot_requests(snapshot: ClusterSnapshot) -> Demand:
    """Group the jobs of a snapshot by what they ask for."""
    jobs = snapshot.jobs
    needs: tuple[IntColumn, ...] = ()
    if len(jobs.node_set) or len(jobs.whole_nodes) or len(jobs.least_cpus):
        needs = (
            jobs.node_set if len(jobs.node_set) else np.full(len(jobs), ANY_NODE, dtype=np.int64),
            jobs.whole_nodes.astype(np.int64) if len(jobs.whole_nodes) else np.zeros(len(jobs), dtype=np.int64),
            jobs.least_cpus if len(jobs.least_cpus) else np.zeros(len(jobs), dtype=np.int64),
        )
    return group_requests(jobs, snapshot.partitions, snapshot.nodes.gpu_types, needs)


def group_requests(
    jobs: RequestColumns, partitions: tuple[str, ...], gpu_types: tuple[str, ...], needs: tuple[IntColumn, ...] = ()
) -> Demand:
    """Group jobs by what they ask for of nodes with these partitions and GPU types.

    ``needs`` are none, or the columns of :attr:`RequestShape.node_set`, ``whole_nodes`` and ``least_cpus``.

    O(n log n) in the number of jobs, all in numpy; Python runs once per distinct shape.
    """
    if len(jobs.gpus) == 0:
        return Demand(np.zeros(0, dtype=np.int64), ())
    partition = translate_codes(jobs.partition, jobs.partitions, partitions)
    gpu_type = translate_codes(jobs.gpu_type, jobs.gpu_types, gpu_types)
    columns = (partition, gpu_type, jobs.gpus, jobs.nodes, jobs.gpus_per_node, jobs.cpus, jobs.memory_mib, *needs)
    first, code = group_equal_rows(columns)
    shapes = tuple(_shape(*row) for row in zip(*(column[first].tolist() for column in columns), strict=True))
    return Demand(code, shapes)


def translate_codes(codes: IntColumn, own: tuple[str, ...], other: tuple[str, ...]) -> IntColumn:
    """Translate codes into ``own`` names to codes into ``other``; -1 stays, an unknown name becomes NO_SUCH."""
    if own == other:
        return codes
    if not own:
        return (
            codes if not len(codes) or codes.max() < len(other) else np.where(codes < len(other), codes, NO_SUCH_NAME)
        )
    table = np.array(
        [*(other.index(name) if name in other else NO_SUCH_NAME for name in own), ANY_GPU_TYPE], dtype=np.int64
    )
    return table[codes]


def group_equal_rows(columns: tuple[IntColumn, ...]) -> tuple[NDArray[np.intp], IntColumn]:
    """Number the distinct rows of integer columns; returns (a row of each group, the group of each row).

    Columns are folded into one integer each row, so that a single sort of integers does; the fold is compacted when
    the next column could overflow it.
    """
    code = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for column in columns:
        low = int(column.min())
        width = int(column.max()) - low + 1
        if width == 1:
            continue
        if span * width >= 2**62:
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
            span = int(code.max()) + 1
        code = code * width + (column - low)
        span *= width
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return first, inverse.astype(np.int64)


@lru_cache(maxsize=4096)
def _shape(*row: int) -> RequestShape:
    partition, gpu_type, gpus, nodes, per_node, cpus, memory_mib, *needs = row
    node_set, whole_nodes, least_cpus = needs or (ANY_NODE, 0, 0)
    nodes = max(nodes, 1)
    if per_node > 0:
        nodes = max(nodes, -(-gpus // per_node))
    units = 0 if per_node > 0 else gpus or cpus
    unit_cpus, unit_memory = (-(-cpus // gpus), -(-memory_mib // gpus)) if gpus else (1, -(-memory_mib // max(cpus, 1)))
    even_gpus = per_node or -(-gpus // nodes)
    return RequestShape(
        partition=partition,
        gpu_type=gpu_type,
        nodes=nodes,
        gpus=even_gpus,
        cpus=max(-(-cpus // nodes), least_cpus),
        memory_mib=-(-memory_mib // nodes),
        units=units if units > 1 else 0,
        unit_cpus=unit_cpus if units > 1 else 0,
        unit_memory_mib=unit_memory if units > 1 else 0,
        wants_gpus=gpus > 0,
        node_set=node_set,
        whole_nodes=whole_nodes > 0,
        least_cpus=least_cpus if units > 1 else 0,
    )

"""Which waiting jobs could start before the next cycle, and which ask for more than others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from slurm_soda.policies.engine.demand import ANY_GPU_TYPE, RequestShape
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn


def find_startable_soon(
    size: IntColumn, leads: BoolColumn, shapes: Sequence[RequestShape], snapshot: ClusterSnapshot
) -> BoolColumn:
    """Waiting jobs that could start before the next cycle: of each size as many as all nodes together have room for."""
    nodes = snapshot.nodes
    gpus, cpus = (nodes.in_partition.T @ column for column in (nodes.gpus, nodes.cpus))
    room = np.array(
        [
            (gpus if shape.wants_gpus else cpus)[shape.partition]
            // (shape.units or shape.nodes * (shape.gpus or shape.cpus) or 1)
            for shape in shapes
        ]
    )
    waiting = np.flatnonzero(~leads)
    by_size = waiting[np.argsort(size[waiting], kind="stable")]
    first = np.searchsorted(size[by_size], size[by_size])
    found = np.zeros(len(size), dtype=np.bool_)
    found[by_size] = np.arange(len(by_size)) - first < np.maximum(room[size[by_size]], 1)
    return found


def find_larger(sizes: Sequence[int], shapes: Sequence[RequestShape]) -> dict[int, list[int]]:
    """For each request those that fit nowhere where it does not fit."""
    of_partition: dict[int, list[int]] = {}
    for size in sizes:
        of_partition.setdefault(shapes[size].partition, []).append(size)
    return {
        size: [group[other] for other in np.flatnonzero(larger).tolist()]
        for group in of_partition.values()
        for size, larger in zip(group, _fits_where([shapes[size] for size in group]), strict=True)
    }


def _fits_where(shapes: Sequence[RequestShape]) -> Iterator[BoolColumn]:
    """Of requests of one partition: for each one which of them can only be met where it can be met as well.

    A request that may be split in any way over at least so many nodes is met wherever an even one of as much is met; an even
    one for a single GPU or CPU wherever one of several is.
    """
    columns = np.array(shapes, dtype=np.int64).T
    gpu_type, nodes, gpus, cpus, memory_mib, units, unit_cpus, unit_memory_mib, wants_gpus = columns[1:10]
    split = units > 0
    for shape in shapes:
        same = (gpu_type == shape.gpu_type) | (shape.gpu_type == ANY_GPU_TYPE)
        same &= (wants_gpus == shape.wants_gpus) & (nodes >= shape.nodes)
        if shape.units:
            each = np.where(shape.wants_gpus, gpus, cpus)
            even = (each * nodes >= shape.units) & (cpus >= each * shape.unit_cpus)
            even &= memory_mib >= each * shape.unit_memory_mib
            other = (units >= shape.units) & (unit_cpus >= shape.unit_cpus) & (unit_memory_mib >= shape.unit_memory_mib)
            yield same & np.where(split, other, even)
            continue
        even = (gpus >= shape.gpus) & (cpus >= shape.cpus) & (memory_mib >= shape.memory_mib)
        single = shape.nodes == 1 and (shape.gpus if shape.wants_gpus else shape.cpus) <= 1
        other = (unit_cpus >= shape.cpus) & (unit_memory_mib >= shape.memory_mib) & single
        yield same & np.where(split, other, even)

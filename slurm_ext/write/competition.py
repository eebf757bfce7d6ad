"""Which waiting jobs compete: for the same nodes, for more of them than another, and before the next cycle at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class SharedNodes:
    """Nodes for which the same lists of partitions compete, in one tier: Slurm compares tiers before priorities.

    Two lists of partitions are *rivals* if they have a group in common. There are as many groups as the site's partitions
    make, however many lists its users combine them to, so work by group is not work by pair of lists.
    """

    members: BoolColumn
    """By the code of a list of partitions, and by group, whether its jobs may take the group's nodes."""

    @classmethod
    def of(cls, partitions: IntColumn, snapshot: ClusterSnapshot) -> SharedNodes:
        """Groups of these lists of partitions, the other lists being in none.

        A list with a partition of unknown tier counts in every tier.
        """
        rows = (row[partitions] for row in snapshot.nodes.in_partition)
        kinds = {row.tobytes(): row for row in rows}  # of nodes, by the lists that have them
        may_take = np.array(list(kinds.values()), dtype=np.bool_).reshape(-1, len(partitions))
        tiers = _tiers([snapshot.partitions[code] for code in partitions.tolist()], snapshot)
        groups = np.concatenate([may_take & of_tier for of_tier in tiers])
        groups = groups[groups.any(axis=1)]
        members = np.zeros((len(snapshot.partitions), len(groups)), dtype=np.bool_)
        members[partitions] = groups.T
        return cls(members)

    def of_list(self, partition: int) -> list[int]:
        """The groups of one list of partitions; one that is nobody else's for a list without nodes."""
        return np.flatnonzero(self.members[partition]).tolist() or [-1 - partition]

    def rivals(self, partition: int) -> BoolColumn:
        """Of all lists of partitions those whose jobs may take the nodes of one, itself included."""
        found: BoolColumn = np.any(self.members[:, self.members[partition]], axis=1)
        found[partition] = True
        return found


def _tiers(lists: Sequence[str], snapshot: ClusterSnapshot) -> BoolColumn:
    """By tier, and by list of partitions, whether the list counts in the tier; the last tier is that of unknown ones."""
    known = {part.name: part.tier for part in snapshot.pools.table} | dict(snapshot.tiers)
    row = {tier: at for at, tier in enumerate(sorted(set(known.values())))}
    found = np.zeros((len(row) + 1, len(lists)), dtype=np.bool_)
    for at, names in enumerate(lists):
        rows = [row[known[name]] if name in known else -1 for name in names.split(",")]
        found[slice(None) if -1 in rows else rows, at] = True
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

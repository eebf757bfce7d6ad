"""Which pool a job is in, by the partitions that it may run in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn

POOL_TURN_ORDER = (PoolKind.LARGE, PoolKind.SMALL, PoolKind.CPU)
"""In which order pools take what is free: jobs of four GPUs are the hardest to place, CPU jobs the easiest."""

NO_POOL = -1


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """One pool of one base: its jobs are ordered among themselves.

    Where the two GPU pools share their nodes they are one, of kind small: Slurm compares their jobs.
    """

    base: str
    kind: PoolKind

    @property
    def name(self) -> str:
        """As actions call it."""
        return f"{self.base}/{self.kind.value}"


@dataclass(frozen=True, slots=True)
class PoolMembership:
    """The place of jobs with one list of partitions among the pools."""

    pool: PoolGroup
    own: tuple[PoolPartition, ...]
    """Partitions of the list where a job cannot be aborted, in the list's order."""
    borrowing: tuple[PoolPartition, ...]
    """Those where Slurm may take back what it holds."""


@dataclass(frozen=True, slots=True)
class PoolMembers:
    """Memberships of a snapshot's jobs, by their partition's code."""

    pools: tuple[PoolGroup, ...]
    """In the order in which they take turns."""
    by_partition: tuple[PoolMembership | None, ...]
    pool_of_partition: IntColumn
    """Number in :attr:`pools`, or :data:`NO_POOL`."""
    borrows: BoolColumn
    """Of each partition: the list has one where Slurm may take back what a job holds."""
    owns: BoolColumn
    """Of each partition: the list has one where it cannot."""

    def pool_of(self, codes: IntColumn) -> IntColumn:
        """The pool of each job, by its partition."""
        return self.pool_of_partition[codes]


def members_of(snapshot: ClusterSnapshot) -> PoolMembers | None:
    """Which jobs are in which pool; ``None`` where no job is in any."""
    table = snapshot.pools.table
    if not len(table) or not len(snapshot.jobs):
        return None
    shared = bases_with_shared_gpu_nodes(table)
    found = tuple(membership_of(name, table, shared) for name in snapshot.partitions)
    present = np.unique(snapshot.jobs.partition).tolist()
    if all(found[code] is None for code in present):
        return None
    pools = sorted({one.pool for one in found if one}, key=lambda pool: (POOL_TURN_ORDER.index(pool.kind), pool.base))
    number = {pool: at for at, pool in enumerate(pools)}
    return PoolMembers(
        tuple(pools),
        found,
        np.array([number[one.pool] if one else NO_POOL for one in found], dtype=np.int64),
        np.array([bool(one and one.borrowing) for one in found], dtype=np.bool_),
        np.array([bool(one and one.own) for one in found], dtype=np.bool_),
    )


def membership_of(partitions: str, table: PoolTable, shared: frozenset[str]) -> PoolMembership | None:
    """The membership of a list of partitions; ``None`` where they are not all of one pool.

    Args:
        shared: of :func:`bases_with_shared_gpu_nodes`.
    """
    names = partitions.split(",")
    parts = [part for name in names if (part := table.get(name))]
    if len(parts) != len(names) or len({(part.base, part.kind) for part in parts}) != 1:
        return None
    base, kind = parts[0].base, parts[0].kind
    one = kind is PoolKind.LARGE and base in shared
    return PoolMembership(
        PoolGroup(base, PoolKind.SMALL if one else kind),
        tuple(part for part in parts if not part.borrowing),
        tuple(part for part in parts if part.borrowing),
    )


def bases_with_shared_gpu_nodes(table: PoolTable) -> frozenset[str]:
    """Bases with nodes that are both GPU pools' own."""
    nodes: dict[tuple[str, PoolKind], set[str]] = {}
    for part in table:
        if not part.borrowing:
            nodes.setdefault((part.base, part.kind), set()).update(part.nodes)
    none: set[str] = set()
    return frozenset(
        base
        for base in table.bases
        if nodes.get((base, PoolKind.SMALL), none) & nodes.get((base, PoolKind.LARGE), none)
    )

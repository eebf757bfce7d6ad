"""Which array a job is in, by the partitions that it may run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.slurm_ext.client import SlurmJob

POOL_TURN_ORDER = (PoolKind.LARGE, PoolKind.SMALL, PoolKind.CPU)
"""In which order arrays take what is free: jobs of four GPUs are the hardest to place, CPU jobs the easiest."""


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """One array of one base: its jobs are ordered among themselves.

    Where the two GPU arrays share their nodes they are one group, of kind small: Slurm compares their jobs.
    """

    base: str
    kind: PoolKind


@dataclass(frozen=True, slots=True)
class PoolMembership:
    """One job's place among the arrays."""

    group: PoolGroup
    kind: PoolKind
    own: tuple[PoolPartition, ...]
    """Partitions of its list where it cannot be aborted, in the list's order."""
    borrowing: tuple[PoolPartition, ...]
    """Those where Slurm may take back what it holds."""


def pool_memberships(jobs: Mapping[int, SlurmJob], table: PoolTable) -> dict[int, PoolMembership]:
    """Of all jobs that are in an array, by job id; left out are those whose partitions are not all of one array."""
    if not len(table):
        return {}
    shared = bases_with_shared_gpu_nodes(table)
    # A list of partitions is one text shared by thousands of jobs.
    known: dict[str, PoolMembership | None] = {}
    found = {}
    for job_id, record in jobs.items():
        if record.partition not in known:
            known[record.partition] = _membership(record.partition, table, shared)
        if membership := known[record.partition]:
            found[job_id] = membership
    return found


def _membership(partitions: str, table: PoolTable, shared: frozenset[str]) -> PoolMembership | None:
    names = partitions.split(",")
    parts = [part for name in names if (part := table.get(name))]
    if len(parts) != len(names) or len({(part.base, part.kind) for part in parts}) != 1:
        return None
    base, kind = parts[0].base, parts[0].kind
    one = kind is PoolKind.LARGE and base in shared
    return PoolMembership(
        PoolGroup(base, PoolKind.SMALL if one else kind),
        kind,
        tuple(part for part in parts if not part.borrowing),
        tuple(part for part in parts if part.borrowing),
    )


def bases_with_shared_gpu_nodes(table: PoolTable) -> frozenset[str]:
    """Bases with nodes that are both GPU arrays' own."""
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

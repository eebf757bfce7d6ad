"""Which array a job is in, by the partitions that it may run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_soda.policies.arrays.kinds import ArrayKind
from slurm_soda.policies.arrays.layout import ArrayPartition, ArrayTable
from slurm_soda.slurm_ext.client import JobRecord

TURNS = (ArrayKind.LARGE, ArrayKind.SMALL, ArrayKind.CPU)
"""In which order arrays take what is free: jobs of four GPUs are the hardest to place, CPU jobs the easiest."""


@dataclass(frozen=True, slots=True)
class Group:
    """One array of one base: its jobs are ordered among themselves.

    Where the two GPU arrays share their nodes they are one group, of kind small: Slurm compares their jobs.
    """

    base: str
    kind: ArrayKind


@dataclass(frozen=True, slots=True)
class Membership:
    """One job's place among the arrays."""

    group: Group
    kind: ArrayKind
    own: tuple[ArrayPartition, ...]
    """Partitions of its list where it cannot be aborted, in the list's order."""
    borrowing: tuple[ArrayPartition, ...]
    """Those where Slurm may take back what it holds."""


def memberships(jobs: Mapping[int, JobRecord], table: ArrayTable) -> dict[int, Membership]:
    """Of all jobs that are in an array, by job id; left out are those whose partitions are not all of one array."""
    if not len(table):
        return {}
    shared = undivided(table)
    # A list of partitions is one text shared by thousands of jobs.
    known: dict[str, Membership | None] = {}
    found = {}
    for job_id, record in jobs.items():
        if record.partition not in known:
            known[record.partition] = _membership(record.partition, table, shared)
        if membership := known[record.partition]:
            found[job_id] = membership
    return found


def _membership(partitions: str, table: ArrayTable, shared: frozenset[str]) -> Membership | None:
    names = partitions.split(",")
    parts = [part for name in names if (part := table.get(name))]
    if len(parts) != len(names) or len({(part.base, part.kind) for part in parts}) != 1:
        return None
    base, kind = parts[0].base, parts[0].kind
    one = kind is ArrayKind.LARGE and base in shared
    return Membership(
        Group(base, ArrayKind.SMALL if one else kind),
        kind,
        tuple(part for part in parts if not part.borrowing),
        tuple(part for part in parts if part.borrowing),
    )


def undivided(table: ArrayTable) -> frozenset[str]:
    """Bases with nodes that are both GPU arrays' own."""
    nodes: dict[tuple[str, ArrayKind], set[str]] = {}
    for part in table:
        if not part.borrowing:
            nodes.setdefault((part.base, part.kind), set()).update(part.nodes)
    none: set[str] = set()
    return frozenset(
        base
        for base in table.bases
        if nodes.get((base, ArrayKind.SMALL), none) & nodes.get((base, ArrayKind.LARGE), none)
    )

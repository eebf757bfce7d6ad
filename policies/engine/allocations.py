"""What preemptible running jobs hold, by node and by job."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.snapshot import IntColumn, JobTable


class RankedAllocation(NamedTuple):
    """What one job holds on one node."""

    rank: int
    row: int
    gpus: int
    cpus: int
    memory_mib: int


class PreemptibleAllocations:
    """Jobs that may be preempted and the nodes they hold.

    Attributes:
        rows: rows of all these jobs, those that leave too.
        on_node: shares of jobs that stay so far, worst-ranked first, by node.
    """

    def __init__(self, jobs: JobTable, rows: IntColumn, position: IntColumn) -> None:
        """``rows`` of the job table; ``position`` is the rank of every row."""
        self.rows = rows
        owner, entry = find_allocation_entries(jobs, rows)
        self._pieces: dict[int, list[NodeAllocation]] = {row: [] for row in rows.tolist()}
        self.on_node: dict[int, list[RankedAllocation]] = {}
        rank = position[owner]
        memory_mib = split_memory_mib(jobs, owner, entry)
        worst_first = np.argsort(-rank, kind="stable")
        columns = (rank, owner, jobs.alloc_node[entry], jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_mib)
        for worst, row, node, gpus, cpus, memory in zip(*(c[worst_first].tolist() for c in columns), strict=True):
            self.on_node.setdefault(node, []).append(RankedAllocation(worst, row, gpus, cpus, memory))
            self._pieces[row].append(NodeAllocation(node, gpus, cpus, memory))

    @classmethod
    def of_pieces(cls, pieces: Mapping[int, list[NodeAllocation]], rank: Mapping[int, int]) -> PreemptibleAllocations:
        """Of jobs, or of groups of them by the row of one, with what each holds and its rank."""
        made = cls.__new__(cls)
        made.rows = np.array(list(pieces), dtype=np.int64)
        made._pieces = dict(pieces)
        made.on_node = {}
        for row in sorted(pieces, key=lambda one: -rank[one]):
            for node, *amounts in pieces[row]:
                made.on_node.setdefault(node, []).append(RankedAllocation(rank[row], row, *amounts))
        return made

    def pieces(self, row: int) -> list[NodeAllocation]:
        """What a job holds, or held before :meth:`remove`."""
        return self._pieces[row]

    def remove(self, row: int) -> None:
        """This job does not stay."""
        for piece in self._pieces[row]:
            shares = self.on_node[piece.node]
            shares[:] = [share for share in shares if share.row != row]

    def restore(self, row: int, rank: int) -> None:
        """This job stays after all; the inverse of :meth:`remove`."""
        for node, *amounts in self._pieces[row]:
            insort(self.on_node[node], RankedAllocation(rank, row, *amounts), key=lambda share: -share.rank)


def list_allocations(jobs: JobTable, row: int) -> list[NodeAllocation]:
    """What one job holds."""
    owner, entry = find_allocation_entries(jobs, np.array([row]))
    memory_mib = split_memory_mib(jobs, owner, entry)
    columns = (jobs.alloc_node[entry], jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_mib)
    return [NodeAllocation(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def find_allocation_entries(jobs: JobTable, rows: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Indices into the ``alloc_*`` columns of all nodes that these rows hold, and the row of each."""
    first = jobs.alloc_start[rows]
    count = jobs.alloc_start[rows + 1] - first
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(rows, count), np.repeat(first, count) + offset


def split_memory_mib(jobs: JobTable, owner: IntColumn, entry: IntColumn) -> IntColumn:
    """Memory that each entry holds. Slurm reports it for whole jobs: it is divided like the job's CPUs, rounded down."""
    cpus = jobs.alloc_cpus[entry].astype(np.float64)
    total = np.bincount(owner, weights=cpus, minlength=len(jobs))[owner]
    count = np.bincount(owner, minlength=len(jobs))[owner]
    share = np.divide(cpus, total, out=1.0 / np.maximum(count, 1), where=total > 0)
    return np.floor(jobs.memory_mib[owner] * share).astype(np.int64)

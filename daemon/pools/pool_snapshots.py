"""What each array finds free: a snapshot of its own jobs, on nodes as Slurm would give them to it.

Slurm gives a job of an array what nobody holds, and what borrowers of lower tiers hold on its own nodes; but jobs of one
partition never hold more cores of a node than its MaxCPUsPerNode. A policy that is asked about one array sees just that, so
that it neither preempts for cores which Slurm gives back by itself, nor counts on cores which it will not get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.daemon.pools.job_table_rows import select_rows
from slurm_soda.daemon.pools.membership import POOL_TURN_ORDER, PoolGroup, PoolMembership, bases_with_shared_gpu_nodes
from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, NodeTable

_HOLDING = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)


@dataclass(frozen=True, slots=True)
class PoolTurn:
    """One decision to ask for."""

    group: PoolGroup | None
    """``None``: jobs beside the arrays."""
    rows: IntColumn
    """Rows of the whole snapshot, ascending."""
    borrows: bool = True
    """Its waiting jobs may borrow; those that may not are asked about apart."""


def pool_turns(snapshot: ClusterSnapshot, members: Mapping[int, PoolMembership]) -> list[PoolTurn]:
    """The decisions in which arrays take turns; every job is in one of them."""
    ids, state = snapshot.jobs.job_id.tolist(), snapshot.jobs.state
    rows_of: dict[tuple[PoolGroup | None, bool], list[int]] = {}
    for row, job_id in enumerate(ids):
        member = members.get(job_id)
        if member is None:
            rows_of.setdefault((None, True), []).append(row)
            continue
        waits = state[row] in (JobState.PENDING, JobState.BLOCKED)
        rows_of.setdefault((member.group, bool(member.borrowing) or not waits), []).append(row)

    def turn(key: tuple[PoolGroup | None, bool]) -> tuple[int, str, bool]:
        group, borrows = key
        return (-1, "", borrows) if group is None else (POOL_TURN_ORDER.index(group.kind), group.base, borrows)

    return [PoolTurn(key[0], np.array(rows_of[key], dtype=np.int64), key[1]) for key in sorted(rows_of, key=turn)]


class PoolSnapshots:
    """Free resources of all nodes while the arrays take turns."""

    def __init__(self, snapshot: ClusterSnapshot, table: PoolTable) -> None:
        self._snapshot, self._table = snapshot, table
        nodes = snapshot.nodes
        self._row = {name: row for row, name in enumerate(nodes.name)}
        self._free = np.stack((nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib), axis=1).astype(np.int64)
        self._lent: dict[PoolGroup, IntColumn] = {}
        self._used: dict[str, IntColumn] = {}
        """Cores of each node that jobs of a partition hold."""
        self._add_up_held()

    def snapshot_for(self, field: PoolTurn) -> ClusterSnapshot:
        """The snapshot for one decision."""
        snapshot = self._snapshot
        free = self._free.copy()
        if field.group is not None:
            free += self._reclaimable(field.group)
            free[:, 1] = np.minimum(free[:, 1], self._limit(field))
        nodes = _with_free_resources(snapshot.nodes, free)
        return replace(snapshot, jobs=select_rows(snapshot.jobs, field.rows), nodes=nodes)

    def take(self, plan: Plan) -> None:
        """What a decision gave away is no longer there for those after it."""
        for job_id in plan.starts.tolist():
            for piece in plan.places.get(job_id, ()):
                self._free[piece.node] -= (piece.gpus, piece.cpus, piece.memory_mib)
        np.maximum(self._free, 0, out=self._free)

    def _add_up_held(self) -> None:
        jobs = self._snapshot.jobs
        for row in np.flatnonzero(np.isin(jobs.state, _HOLDING)).tolist():
            part = self._table.get(self._snapshot.partitions[int(jobs.partition[row])])
            if part is None:
                continue
            used = self._used.setdefault(part.name, np.zeros(len(self._row), dtype=np.int64))
            for piece in list_allocations(jobs, row):
                used[piece.node] += piece.cpus
                if part.borrowing and jobs.state[row] == JobState.RUNNING:
                    lent = self._lent.setdefault(PoolGroup(part.base, part.kind), np.zeros_like(self._free))
                    lent[piece.node] += (piece.gpus, piece.cpus, piece.memory_mib)

    def _reclaimable(self, group: PoolGroup) -> IntColumn:
        """What Slurm would take back for an array on the array's own nodes."""
        back = np.zeros_like(self._free)
        if group.kind is PoolKind.CPU:
            return back  # its partitions have no higher tier than the borrowers'
        mine = self._nodes_of([part for part in self._parts(group) if not part.borrowing])
        for other, lent in self._lent.items():
            if other.base == group.base and other != group:
                back[mine] += lent[mine]
        back[~self._snapshot.nodes.usable] = 0
        return back

    def _limit(self, field: PoolTurn) -> IntColumn:
        """Cores of each node that the partitions of an array may still give, by their own limits."""
        assert field.group is not None
        left = np.zeros(len(self._row), dtype=np.int64)
        for part in self._parts(field.group):
            if field.borrows or not part.borrowing:
                rows = [self._row[name] for name in part.nodes if name in self._row]
                used = self._used.get(part.name, np.zeros_like(left))
                left[rows] += np.maximum(part.most_cores - used[rows], 0)
        return left

    def _parts(self, group: PoolGroup) -> list[PoolPartition]:
        """An array's partitions; a group of both GPU arrays has those of both."""
        kinds = {group.kind}
        if group.kind is PoolKind.SMALL and group.base in bases_with_shared_gpu_nodes(self._table):
            kinds.add(PoolKind.LARGE)
        return [part for part in self._table if part.base == group.base and part.kind in kinds]

    def _nodes_of(self, parts: Sequence[PoolPartition]) -> BoolColumn:
        found = np.zeros(len(self._row), dtype=np.bool_)
        found[[self._row[name] for part in parts for name in part.nodes if name in self._row]] = True
        return found


def _with_free_resources(nodes: NodeTable, free: IntColumn) -> NodeTable:
    return replace(nodes, gpus_free=free[:, 0].copy(), cpus_free=free[:, 1].copy(), memory_free_mib=free[:, 2].copy())


def move_to_front(order: Sequence[int], first: Sequence[int]) -> list[int]:
    """An order with some of its jobs moved to its head, in the order in which they are given."""
    present = set(order)
    head = dict.fromkeys(job_id for job_id in first if job_id in present)
    return [*head, *(job_id for job_id in order if job_id not in head)]

"""What each pool finds free: a snapshot of its own jobs, on nodes as Slurm would give them to it.

Slurm gives a job of a pool what no job holds, and what borrowers of lower tiers hold on its own nodes; but jobs of one
partition never hold more cores of a node than its MaxCPUsPerNode. A policy that is asked about one pool sees just that, so
that it neither preempts for cores which Slurm gives back by itself, nor counts on cores which it will not get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.pools.layout.partitions import PoolPartition
from slurm_soda.policies.pools.stages.membership import NO_POOL, PoolGroup, PoolMembers, bases_with_shared_gpu_nodes
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, NodeTable

_HOLDING = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)
_WAITING = (JobState.PENDING, JobState.BLOCKED)


@dataclass(frozen=True, slots=True)
class PoolTurn:
    """One decision to ask for."""

    pool: PoolGroup | None
    """``None``: jobs that are in no pool."""
    rows: IntColumn
    """Rows of the whole snapshot, ascending."""
    borrows: bool = True
    """Its waiting jobs may borrow; those that may not are asked about apart."""


def pool_turns(snapshot: ClusterSnapshot, members: PoolMembers) -> list[PoolTurn]:
    """The decisions in which pools take turns, those outside the pools first; every job is in one of them."""
    jobs = snapshot.jobs
    number = members.pool_of(jobs.partition)
    borrows = (number == NO_POOL) | members.borrows[jobs.partition] | ~np.isin(jobs.state, _WAITING)
    key = 2 * number + borrows
    return [
        PoolTurn(None if one // 2 == NO_POOL else members.pools[one // 2], np.flatnonzero(key == one), bool(one % 2))
        for one in np.unique(key).tolist()
    ]


class PoolSnapshots:
    """Free resources of all nodes while the pools take turns."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot, self._table = snapshot, snapshot.pools.table
        nodes = snapshot.nodes
        self._row = {name: row for row, name in enumerate(nodes.name)}
        self._free = np.stack((nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib), axis=1).astype(np.int64)
        self._borrowed: dict[PoolGroup, IntColumn] = {}
        self._used: dict[str, IntColumn] = {}
        """Cores of each node that jobs of a partition hold."""
        self._add_up_held()

    def snapshot_for(self, turn: PoolTurn) -> ClusterSnapshot:
        """The snapshot for one decision."""
        snapshot = self._snapshot
        free = self._free.copy()
        if turn.pool is not None:
            free += self._reclaimable(turn.pool)
            free[:, 1] = np.minimum(free[:, 1], self._limit(turn.pool, borrows=turn.borrows))
        return replace(
            snapshot,
            jobs=snapshot.jobs.only(turn.rows),
            nodes=_with_free(snapshot.nodes, free),
            run_times=snapshot.run_times.only(turn.rows),
            preemption_costs=snapshot.preemption_costs.only(turn.rows),
            spread=snapshot.spread.only(turn.rows),
        )

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
                    lent = self._borrowed.setdefault(PoolGroup(part.base, part.kind), np.zeros_like(self._free))
                    lent[piece.node] += (piece.gpus, piece.cpus, piece.memory_mib)

    def _reclaimable(self, pool: PoolGroup) -> IntColumn:
        """What Slurm would take back for a pool on the pool's own nodes."""
        back = np.zeros_like(self._free)
        if pool.kind is PoolKind.CPU:
            return back  # its partitions have no higher tier than the borrowers'
        mine = self._nodes_of([part for part in self._parts(pool) if not part.borrowing])
        for other, lent in self._borrowed.items():
            if other.base == pool.base and other != pool:
                back[mine] += lent[mine]
        back[~self._snapshot.nodes.usable] = 0
        return back

    def _limit(self, pool: PoolGroup, *, borrows: bool) -> IntColumn:
        """Cores of each node that the partitions of a pool may still give, by their own limits."""
        left = np.zeros(len(self._row), dtype=np.int64)
        for part in self._parts(pool):
            if borrows or not part.borrowing:
                rows = [self._row[name] for name in part.nodes if name in self._row]
                used = self._used.get(part.name, np.zeros_like(left))
                left[rows] += np.maximum(part.most_cores - used[rows], 0)
        return left

    def _parts(self, pool: PoolGroup) -> list[PoolPartition]:
        """A pool's partitions; one of both GPU pools has those of both."""
        kinds = {pool.kind}
        if pool.kind is PoolKind.SMALL and pool.base in bases_with_shared_gpu_nodes(self._table):
            kinds.add(PoolKind.LARGE)
        return [part for part in self._table if part.base == pool.base and part.kind in kinds]

    def _nodes_of(self, parts: Sequence[PoolPartition]) -> BoolColumn:
        found = np.zeros(len(self._row), dtype=np.bool_)
        found[[self._row[name] for part in parts for name in part.nodes if name in self._row]] = True
        return found


def _with_free(nodes: NodeTable, free: IntColumn) -> NodeTable:
    return replace(nodes, gpus_free=free[:, 0].copy(), cpus_free=free[:, 1].copy(), memory_free_mib=free[:, 2].copy())

"""Nodes that Slurm keeps for waiting jobs past which another one may not be lifted.

What is vacated there goes to those jobs, or stays empty until they start: nobody makes way for a job that has to stay
behind them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.engine.demand import ANY_NODE, group_equal_rows
from slurm_soda.policies.engine.lift_bounds import JobKeys, find_natural_priorities, find_tie_places
from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, BoolColumn, ClusterSnapshot, IntColumn, JobState

_LEAST = np.iinfo(np.int64).min


@dataclass(slots=True)
class _Kind:
    """Waiting jobs that may take the same nodes, in Slurm's own order."""

    rows: IntColumn
    nice: IntColumn
    """Of these jobs."""
    partition: int
    nodes: BoolColumn


@dataclass(slots=True)
class _Ahead:
    """The first job of each kind that jobs of one list of partitions and one ``--nice`` may not pass."""

    rows: list[int]
    """In Slurm's own order."""
    keys: list[int]
    """Theirs, negative, so in ascending order."""
    nodes: list[BoolColumn]
    """Those that are kept for each of them and all before it."""
    placed: int
    """How many jobs had places when it was made."""


class KeptNodes:
    """For each waiting job, the nodes that are kept for others: those with a key above its own that were submitted with a
    smaller ``--nice``, as far as the decision has no places for them.

    O(log k) for each job with k kinds; who has places is looked up when twice as many have.
    """

    def __init__(self, snapshot: ClusterSnapshot, waits: BoolColumn, placed: Collection[int]) -> None:
        """``waits`` flags the rows that could run some day; ``placed`` are those with places, ever more of them."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        self._placed, self._partition = placed, jobs.partition
        self._nice = jobs.nice if len(jobs.nice) else np.zeros(len(jobs), dtype=np.int64)
        self._kinds: list[_Kind] = []
        self._ahead: dict[tuple[int, int], _Ahead] = {}
        node_set = jobs.node_set if len(jobs.node_set) else np.full(len(jobs), ANY_NODE, dtype=np.int64)
        waiting = np.flatnonzero(waits & (jobs.site_factor != UNKNOWN_SITE_FACTOR))
        rows = waiting[self._nice[waiting] < self._nice[waiting].max(initial=_LEAST)]
        if not len(rows):
            return
        keys = JobKeys.of(
            find_natural_priorities(jobs), np.arange(len(jobs)), jobs.partition, find_tie_places(jobs)
        ).keys
        # Slurm counts a job's wait anew when it is requeued: one that is preempted comes behind all that wait.
        self._keys = np.where(jobs.state == JobState.RUNNING, _LEAST + 1, keys)
        self._groups = SharedNodes.of(np.unique(jobs.partition[waiting]), snapshot)
        rows = rows[np.argsort(-keys[rows])]
        first, kind = group_equal_rows((jobs.partition[rows], node_set[rows]))
        members = np.split(rows[np.argsort(kind, kind="stable")], np.cumsum(np.bincount(kind))[:-1])
        for row, alike in zip(rows[first].tolist(), members, strict=True):
            flags = nodes.in_partition[:, jobs.partition[row]]
            if node_set[row] != ANY_NODE:
                flags = flags & nodes.node_sets[:, node_set[row]]
            self._kinds.append(_Kind(alike, self._nice[alike], int(jobs.partition[row]), flags))

    def find(self, row: int) -> tuple[BoolColumn, int] | None:
        """One flag for each node, and the row of the first of the jobs for which they are kept; ``None``: no node is."""
        if not self._kinds:
            return None
        ahead = self._look_ahead(int(self._partition[row]), int(self._nice[row]))
        count = bisect_left(ahead.keys, -int(self._keys[row]))
        return (ahead.nodes[count - 1], ahead.rows[0]) if count else None

    def _look_ahead(self, partition: int, nice: int) -> _Ahead:
        known = self._ahead.get((partition, nice))
        if known is not None and len(self._placed) < max(2 * known.placed, 1):
            return known
        rivals = self._groups.rivals(partition)
        heads = ((self._head(kind, nice), kind) for kind in self._kinds if rivals[kind.partition])
        found = sorted(
            ((-int(self._keys[row]), row, kind) for row, kind in heads if row is not None), key=lambda one: one[0]
        )
        nodes: list[BoolColumn] = []
        for _, _, kind in found:
            nodes.append(kind.nodes | nodes[-1] if nodes else kind.nodes)
        ahead = _Ahead([row for _, row, _ in found], [key for key, _, _ in found], nodes, len(self._placed))
        self._ahead[partition, nice] = ahead
        return ahead

    def _head(self, kind: _Kind, nice: int) -> int | None:
        """The first one of a kind that a job as nice as this must not pass."""
        rows = kind.rows[np.flatnonzero(kind.nice < nice)]
        return next((int(row) for row in rows if int(row) not in self._placed), None)

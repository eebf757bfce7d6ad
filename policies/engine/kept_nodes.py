"""Nodes that Slurm keeps for waiting jobs past which another one may not be lifted.

What is vacated there goes to those jobs, or stays empty until they start: nobody makes way for a job that has to stay
behind them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.engine.demand import ANY_NODE, group_equal_rows
from slurm_soda.policies.engine.lift_bounds import JobKeys, find_natural_priorities
from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, BoolColumn, ClusterSnapshot, JobState


@dataclass(slots=True)
class _Kind:
    """Waiting jobs that are alike in which nodes they may take and who may pass them, in Slurm's own order."""

    rows: list[int]
    partition: int
    nice: int
    overdue: bool
    nodes: BoolColumn
    first: int = 0
    """Those before this one have places."""


class KeptNodes:
    """For each waiting job, the nodes that are kept for others: those with a key above its own that are overdue or that were
    submitted with a smaller ``--nice``, as far as the decision has no places for them.
    """

    def __init__(self, snapshot: ClusterSnapshot, waits: BoolColumn, placed: Container[int]) -> None:
        """``waits`` flags the rows that could run some day; ``placed`` are those with places, ever more of them."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        self._placed = placed
        self._runs = jobs.state == JobState.RUNNING
        self._nice = jobs.nice if len(jobs.nice) else np.zeros(len(jobs), dtype=np.int64)
        overdue = jobs.overdue if len(jobs.overdue) else np.zeros(len(jobs), dtype=np.bool_)
        node_set = jobs.node_set if len(jobs.node_set) else np.full(len(jobs), ANY_NODE, dtype=np.int64)
        waiting = np.flatnonzero(waits & (jobs.site_factor != UNKNOWN_SITE_FACTOR))
        nicest = self._nice[waiting].max(initial=np.iinfo(np.int64).min)
        rows = waiting[overdue[waiting] | (self._nice[waiting] < nicest)]
        self._kinds: list[_Kind] = []
        if not len(rows):
            return
        everybody = np.arange(len(jobs))
        self._partition = jobs.partition
        self._keys = JobKeys.of(find_natural_priorities(jobs), everybody, jobs.partition, len(jobs)).keys
        self._groups = SharedNodes.of(np.unique(jobs.partition[waiting]), snapshot)
        rows = rows[np.argsort(-self._keys[rows])]
        first, kind = group_equal_rows(
            (jobs.partition[rows], node_set[rows], self._nice[rows], overdue[rows].astype(np.int64))
        )
        members = np.split(rows[np.argsort(kind, kind="stable")], np.cumsum(np.bincount(kind))[:-1])
        for row, alike in zip(rows[first].tolist(), members, strict=True):
            flags = nodes.in_partition[:, jobs.partition[row]]
            if node_set[row] != ANY_NODE:
                flags = flags & nodes.node_sets[:, node_set[row]]
            part, nice = int(jobs.partition[row]), int(self._nice[row])
            self._kinds.append(_Kind(alike.tolist(), part, nice, bool(overdue[row]), flags))

    def find(self, row: int) -> tuple[BoolColumn, int] | None:
        """One flag for each node, and the row of the first of the jobs for which they are kept; ``None``: no node is."""
        ahead: list[tuple[int, _Kind]] = []
        if self._kinds:
            rivals = self._groups.rivals(int(self._partition[row]))
            bounding = (each for each in self._kinds if rivals[each.partition])
            ahead = [(head, each) for each in bounding if (head := self._head(each, row)) is not None]
        if not ahead:
            return None
        flags: BoolColumn = np.logical_or.reduce([each.nodes for _, each in ahead])
        return flags, max((head for head, _ in ahead), key=self._keys.item)

    def _head(self, kind: _Kind, row: int) -> int | None:
        """The first one of a kind, if it is before this row and must not be passed by it.

        It is before every job that is preempted: Slurm counts a job's wait anew when it is requeued.
        """
        if not kind.overdue and kind.nice >= self._nice[row]:
            return None
        while kind.first < len(kind.rows) and kind.rows[kind.first] in self._placed:
            kind.first += 1
        if kind.first == len(kind.rows):
            return None
        head = kind.rows[kind.first]
        return head if self._runs[row] or self._keys[head] > self._keys[row] else None

"""Places that are kept for overdue jobs, and who may start there all the same.

Such a job gets the earliest places that are sure: by then all that hold them have come to their time limits, or can be
requeued. Until then others may start on them if they leave them in time; afterwards, if they leave enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn
from slurm_soda.policies.waiting.gpu_groups import Holder

_Columns = tuple[IntColumn, IntColumn, IntColumn]
"""GPUs, CPUs and memory in MiB of each node."""

_STARTS = -1
"""Instead of the row of one who starts in this decision."""


@dataclass(frozen=True, slots=True)
class Stay:
    """How long a job would hold its places if it started now."""

    end_s: float
    """At the latest."""
    way_s: float
    """When an overdue job may preempt it: minus infinity if at once, a part of the limit later if it is overdue, its end if
    it cannot be requeued."""


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """What is kept for one overdue job from ``start_s`` on."""

    row: int
    start_s: float
    end_s: float
    pieces: list[NodeAllocation]
    nodes: BoolColumn
    """Nodes of the pieces."""
    candidates: BoolColumn
    """Nodes that would do for the job."""
    preempts: bool
    """Others are preempted for it, so those that can be may use its places meanwhile."""
    left: _Columns
    """What each node has free from ``start_s`` on beside these places."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What is held of nodes, as columns: one value for each node of each holder."""

    first: IntColumn
    """First row of the holder; -1 for one that starts in this decision."""
    limit_s: FloatColumn
    """When it is given back at the latest."""
    way_s: FloatColumn
    """The same for a job that preempts."""
    node: IntColumn
    amounts: _Columns

    @classmethod
    def of(cls, holders: Sequence[tuple[int, float, float, list[NodeAllocation]]]) -> _Held:
        """Columns of (first row, limit, way, pieces)."""
        counts = [len(pieces) for *_, pieces in holders]
        numbers = np.fromiter(chain.from_iterable(chain.from_iterable(one[3] for one in holders)), np.int64)
        node, *amounts = numbers.reshape(-1, 4).T
        first = np.repeat(np.array([one[0] for one in holders], dtype=np.int64), counts)
        limit_s, way_s = (np.repeat(np.array([one[at] for one in holders], dtype=np.float64), counts) for at in (1, 2))
        return cls(first, limit_s, way_s, node, (amounts[0], amounts[1], amounts[2]))

    def without(self, rows: Sequence[int]) -> _Held:
        """Those who have not one of these first rows."""
        stays = ~np.isin(self.first, rows)
        return self._each(lambda column, _: column[stays], self)

    def and_then(self, other: _Held) -> _Held:
        """These and others."""
        return self._each(lambda one, two: np.concatenate((one, two)), other)

    def _each(self, change: Callable[[Any, Any], Any], other: _Held) -> _Held:
        limit_s, way_s = change(self.limit_s, other.limit_s), change(self.way_s, other.way_s)
        gpus, cpus, memory_mib = (change(one, two) for one, two in zip(self.amounts, other.amounts, strict=True))
        first, node = change(self.first, other.first), change(self.node, other.node)
        return _Held(first, limit_s, way_s, node, (gpus, cpus, memory_mib))


class FutureCapacity:
    """When nodes will have free what a job asks for, by the time limits of those who hold it.

    Jobs only give back resources as time passes, and kept places count as held until their job's own limit; so what is free
    only grows, and the earliest time is found by bisection: O(log holders) searches of all nodes.
    """

    def __init__(self, now_s: float, classes: NodeGroups, holders: Sequence[Holder]) -> None:
        self._now_s, self._classes = now_s, classes
        self._held = _Held.of([(one.rows[0], one.limit_s, max(one.end_s, now_s), one.pieces) for one in holders])
        self._leaving: list[int] = []
        self._starting: list[tuple[int, float, float, list[NodeAllocation]]] = []
        """What changed since the last search."""
        self.kept: list[KeptPlaces] = []

    def leave(self, rows: Iterable[int]) -> None:
        """These holders, by their first rows, leave now: what they held counts as free elsewhere."""
        self._leaving += rows

    def start(self, pieces: list[NodeAllocation], stay: Stay) -> None:
        """A job starts, on places that are no longer free."""
        self._starting.append((_STARTS, stay.end_s, stay.way_s, pieces))
        for one in self.find_minded(stay):
            for node, *amounts in pieces:
                for column, amount in zip(one.left, amounts, strict=True):
                    column[node] -= amount

    def keep(self, row: int, shape: RequestShape, stay: Stay, free: FreeNodes, *, preempts: bool) -> bool:
        """Keep the earliest places for a waiting job that finds none now; whether there are any, some day.

        Args:
            row: the job's.
            free: what is free now and soon, less what was given away.
            stay: of the job, if it started now.
        """
        self._settle()
        ends_s = self._held.way_s if preempts else self._held.limit_s
        times = np.unique(np.concatenate((ends_s, [one.end_s for one in self.kept], [self._now_s])))
        low, high = 0, len(times)
        found: list[NodeAllocation] | None = None
        middle = high - 1  # the last one first: it decides whether the job fits at all
        while low < high:
            columns = self._free_at(float(times[middle]), free, ends_s, keep_all=True)
            pieces = FreeNodes(self._classes, *columns).find(shape) if self._might_fit(shape, columns) else None
            if pieces is None:
                low = middle + 1
            else:
                high, found = middle, pieces
            middle = (low + high) // 2
        if found is None:
            return False
        start_s = float(times[high])
        left = self._free_at(start_s, free, ends_s, keep_all=False)
        _take(left, found)
        nodes = np.zeros(len(left[0]), dtype=np.bool_)
        nodes[[piece.node for piece in found]] = True
        end_s = start_s + stay.end_s - self._now_s
        for one in self.kept:
            if start_s <= one.start_s < end_s:
                _take(one.left, found)
        self.kept.append(KeptPlaces(row, start_s, end_s, found, nodes, self._classes.mask(shape), preempts, left))
        return True

    def _settle(self) -> None:
        """Carry out what changed since the last search, at once: one by one it would cost O(holders) each time."""
        self._held = self._held.without(self._leaving).and_then(_Held.of(self._starting))
        self._leaving, self._starting = [], []

    def _might_fit(self, shape: RequestShape, columns: _Columns) -> bool:
        """Whether enough nodes have what each part of a request takes at least; a quick look."""
        enough = [column >= least for column, least in zip(columns, shape.least, strict=True)]
        return int(np.count_nonzero(np.logical_and.reduce(enough))) >= (1 if shape.units else shape.nodes)

    def find_barred(self, shape: RequestShape, stay: Stay) -> BoolColumn | None:
        """Nodes on which a job of this shape would delay one for which they are kept; ``None``: there are none.

        Only the kept nodes are looked at.
        """
        barred = [
            piece.node
            for one in self.find_minded(stay)
            for piece in one.pieces
            if any(column.item(piece.node) < least for column, least in zip(one.left, shape.least, strict=True))
        ]
        if not barred:
            return None
        found = np.zeros(len(self._classes.of), dtype=np.bool_)
        found[barred] = True
        return found

    def find_kept_nodes(self, stay: Stay) -> BoolColumn | None:
        """All nodes that are kept beyond a job's stay; ``None``: there are none."""
        minded = self.find_minded(stay)
        return np.logical_or.reduce([one.nodes for one in minded]) if minded else None

    def admits(self, pieces: Iterable[NodeAllocation], stay: Stay) -> bool:
        """Whether nobody for whom places are kept is delayed by a job that starts now on these."""
        return all(
            all(column[node] >= amount for column, amount in zip(one.left, amounts, strict=True))
            for one in self.find_minded(stay)
            for node, *amounts in pieces
            if one.nodes[node]
        )

    def find_minded(self, stay: Stay) -> list[KeptPlaces]:
        """What is kept for those whom a job could delay that stays so long."""
        return [one for one in self.kept if one.start_s < (stay.way_s if one.preempts else stay.end_s)]

    def _free_at(
        self,
        time_s: float,
        free: FreeNodes,
        ends_s: FloatColumn,
        *,
        keep_all: bool,
    ) -> _Columns:
        """What is free at a time, less the places that are kept then, or with ``keep_all`` those not yet given back."""
        columns = (free.gpus.copy(), free.cpus.copy(), free.memory_mib.copy())
        gone = ends_s <= time_s
        for column, amounts in zip(columns, self._held.amounts, strict=True):
            np.add.at(column, self._held.node[gone], amounts[gone])
        for one in self.kept:
            if time_s < one.end_s and (keep_all or one.start_s <= time_s):
                _take(columns, one.pieces)
        return columns


def _take(columns: _Columns, pieces: Iterable[NodeAllocation]) -> None:
    for node, *amounts in pieces:
        for column, amount in zip(columns, amounts, strict=True):
            column[node] -= amount

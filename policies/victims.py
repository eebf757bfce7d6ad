"""Which running jobs must leave so that a waiting one finds room.

Rank decides: of all sets of jobs that would make room, the set whose best-ranked member ranks worst is taken. Any other
choice would be undone at once, since a preempted job may itself claim the places of jobs that rank below it. Jobs that
turn out not to be needed are dropped again, best-ranked first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from slurm_soda.policies.demand import Shape
from slurm_soda.policies.placement import Piece, pieces_over, slots_of
from slurm_soda.policies.room import Room, held_by
from slurm_soda.policies.snapshot import BoolColumn, IntColumn, JobTable

NOBODY = -1


class Reclaimable:
    """Running jobs that may be preempted, as one entry for each node of each of them.

    Entries are sorted by node, on a node the worst-ranked first. One search is a few passes over all entries in numpy:
    O(entries), about half a millisecond for 30 000.
    """

    def __init__(self, jobs: JobTable, rows: IntColumn, position: IntColumn, room: Room) -> None:
        self._room = room
        self.held = {row: held_by(jobs, row) for row in rows.tolist()}
        flat = [(row, *piece) for row, pieces in self.held.items() for piece in pieces]
        table = np.array(flat, dtype=np.int64).reshape(-1, 5)
        table = table[np.lexsort((-position[table[:, 0]], table[:, 1]))]
        self._row, self._node, self._gpus, self._cpus, self._memory_mib = np.ascontiguousarray(table.T)
        self._rank = position[self._row]
        self._first = np.flatnonzero(np.diff(self._node, prepend=-1))
        self._segment = np.repeat(np.arange(len(self._first)), np.diff(self._first, append=len(self._node)))
        self._staying = np.ones(len(self._row), dtype=np.bool_)
        self._entries: dict[int, list[int]] = {}
        for at, row in enumerate(self._row.tolist()):
            self._entries.setdefault(row, []).append(at)

    def leave(self, row: int) -> None:
        """This job has been preempted."""
        self._staying[self._entries[row]] = False

    def find(self, shape: Shape, rank: int) -> tuple[list[Piece], list[int]] | None:
        """Places for a gang of this rank and the rows of the jobs that must leave them, worst-ranked first.

        Only jobs that rank behind ``rank`` leave. ``None``: not even if all of them left.
        """
        if not len(self._row):
            return None
        usable = self._staying & (self._rank > rank) & self._room.classes.mask(shape)[self._node]
        if not usable.any():
            return None
        found = self._find_even(shape, usable) if shape.is_even else None
        found = found or (self._find_split(shape, usable) if shape.units else None)
        if found is None:
            return None
        pieces, victims = found
        return pieces, self._needed(pieces, victims)

    def _find_even(self, shape: Shape, usable: BoolColumn) -> tuple[list[Piece], list[int]] | None:
        soon = self._room.soon
        enough = (
            usable
            & (self._freed(usable, self._gpus) + soon.gpus[self._node] >= shape.gpus)
            & (self._freed(usable, self._cpus) + soon.cpus[self._node] >= shape.cpus)
            & (self._freed(usable, self._memory_mib) + soon.memory_mib[self._node] >= shape.memory_mib)
        )
        # The first entry that is enough is the best-ranked one that must leave; the later it ranks the better the node.
        price = np.maximum.reduceat(np.where(enough, self._rank, NOBODY), self._first)
        spare = self._spare_nodes(shape)[: shape.nodes]
        segments = self._best_segments(price, spare, shape.nodes - len(spare))
        if segments is None:
            return None
        nodes = [*spare.tolist(), *self._node[self._first[segments]].tolist()]
        leaving = usable & np.isin(self._segment, segments) & (self._rank >= price[self._segment])
        return [Piece(node, shape.gpus, shape.cpus, shape.memory_mib) for node in nodes], self._rows(leaving)

    def _freed(self, usable: BoolColumn, column: IntColumn) -> IntColumn:
        """What each node gains if its usable entries leave, worst-ranked first, up to and including this one."""
        running = np.where(usable, column, 0).cumsum()
        before = running[self._first] - np.where(usable, column, 0)[self._first]
        gained: IntColumn = running - before[self._segment]
        return gained

    def _spare_nodes(self, shape: Shape) -> NDArray[np.intp]:
        """Nodes where one part of an even gang fits without preemption."""
        soon = self._room.soon
        fits = (soon.gpus >= shape.gpus) & (soon.cpus >= shape.cpus) & (soon.memory_mib >= shape.memory_mib)
        return np.flatnonzero(fits & self._room.classes.mask(shape))

    def _best_segments(self, price: IntColumn, spare: NDArray[np.intp], wanted: int) -> NDArray[np.intp] | None:
        open_to = (price > NOBODY) & ~np.isin(self._node[self._first], spare)
        if wanted == 1:
            best = int(np.argmax(np.where(open_to, price, NOBODY)))
            return np.array([best]) if open_to[best] else None
        segments = np.flatnonzero(open_to)
        if len(segments) < wanted:
            return None
        return segments[np.argsort(-price[segments], kind="stable")[:wanted]]

    def _find_split(self, shape: Shape, usable: BoolColumn) -> tuple[list[Piece], list[int]] | None:
        """Preempt from the worst rank upwards until the gang fits in any split; a bisection over ranks."""
        ranks = np.unique(self._rank[usable])
        low, high, best = 0, len(ranks) - 1, None
        while low <= high:
            middle = (low + high) // 2
            pieces = self._split_without(shape, usable & (self._rank >= ranks[middle]))
            if pieces is None:
                high = middle - 1
            else:
                low, best = middle + 1, (pieces, usable & (self._rank >= ranks[middle]))
        if best is None:
            return None
        pieces, leaving = best
        touched = np.isin(self._node, [piece.node for piece in pieces])
        return pieces, self._rows(leaving & touched)

    def _split_without(self, shape: Shape, leaving: BoolColumn) -> list[Piece] | None:
        soon, node = self._room.soon, self._node[leaving]
        gpus, cpus, memory_mib = soon.gpus.copy(), soon.cpus.copy(), soon.memory_mib.copy()
        np.add.at(gpus, node, self._gpus[leaving])
        np.add.at(cpus, node, self._cpus[leaving])
        np.add.at(memory_mib, node, self._memory_mib[leaving])
        slots = slots_of(shape, gpus, cpus, memory_mib)
        return pieces_over(shape, np.where(self._room.classes.mask(shape), slots, 0))

    def _rows(self, entries: BoolColumn) -> list[int]:
        """The jobs of these entries, worst-ranked first."""
        at = np.flatnonzero(entries)
        rows = self._row[at[np.argsort(-self._rank[at], kind="stable")]]
        return list(dict.fromkeys(rows.tolist()))

    def _needed(self, pieces: list[Piece], victims: list[int]) -> list[int]:
        """Drop victims that the places do not need, the best-ranked first."""
        soon = self._room.soon
        lacking = {
            p.node: [
                p.gpus - soon.gpus.item(p.node),
                p.cpus - soon.cpus.item(p.node),
                p.memory_mib - soon.memory_mib.item(p.node),
            ]
            for p in pieces
        }
        for row in victims:
            _add(lacking, self.held[row], -1)
        kept = []
        for row in reversed(victims):
            _add(lacking, self.held[row], 1)
            if any(lack > 0 for part in lacking.values() for lack in part):
                _add(lacking, self.held[row], -1)
                kept.append(row)
        return kept[::-1]


def _add(lacking: dict[int, list[int]], pieces: list[Piece], sign: int) -> None:
    for node, *amounts in pieces:
        if node in lacking:
            lacking[node] = [lack + sign * amount for lack, amount in zip(lacking[node], amounts, strict=True)]

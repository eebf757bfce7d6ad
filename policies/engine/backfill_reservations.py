"""What nodes have free now, and what they will have free when reserved jobs are due to start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, split_memory_mib
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState

STATES_HOLDING_RESOURCES = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)


class BackfillReservation(NamedTuple):
    """Places that are kept for a job from ``start_s`` on; ``classes`` are the node classes of its pieces."""

    start_s: float
    end_s: float
    pieces: list[NodeAllocation]
    classes: frozenset[int]
    left: tuple[IntColumn, IntColumn, IntColumn]
    """GPUs, CPUs and memory of each node that are free at ``start_s`` besides all that is expected to run then."""


class _EarliestFit(NamedTuple):
    start_s: float
    pieces: list[NodeAllocation]


class ReservationCalendar:
    """Free capacity for jobs whose end is known, besides the reservations made so far.

    Jobs only give back resources as time passes, reservations only take some at their start. So a job that starts now
    delays no reservation if it fits now and at the start of each reservation that it outlives. The node-wise least of
    these is a pool (a lane), kept for each set of reservations that somebody had to mind.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, free: FreeNodes, ends_s: FloatColumn, *, whole_nodes: bool = False
    ) -> None:
        """``free`` is what is free now; the owner of this calendar takes from it what it starts.

        With ``whole_nodes`` a reservation leaves nothing of its nodes to others while it holds.
        """
        jobs = snapshot.jobs
        owner, entry = find_allocation_entries(jobs, np.flatnonzero(np.isin(jobs.state, STATES_HOLDING_RESOURCES)))
        by_end = np.argsort(ends_s[owner], kind="stable")
        owner, entry = owner[by_end], entry[by_end]
        self._now_s = snapshot.now_s
        self._whole_nodes = whole_nodes
        self._free = free
        self._ends = ends_s[owner]
        self._node = jobs.alloc_node[entry]
        self._held = (jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], split_memory_mib(jobs, owner, entry))
        self._started: list[tuple[float, list[NodeAllocation]]] = []
        self._lanes: dict[tuple[int, ...], FreeNodes] = {}
        self._classes: dict[tuple[int, int], frozenset[int]] = {}
        self.reservations: list[BackfillReservation] = []

    def find_delayed(self, shape: RequestShape, end_s: float) -> tuple[int, ...]:
        """The reservations that a job of this shape may delay if it starts now and ends at ``end_s``."""
        if not self.reservations:
            return ()
        kind = (shape.partition, shape.gpu_type)
        if kind not in self._classes:
            self._classes[kind] = frozenset(self._free.classes.matching(*kind))
        usable = self._classes[kind]
        return tuple(
            number
            for number, item in enumerate(self.reservations)
            if item.start_s < end_s and not usable.isdisjoint(item.classes)
        )

    def lane(self, minded: tuple[int, ...]) -> FreeNodes:
        """What is free from now on besides these reservations."""
        if not minded:
            return self._free
        if minded not in self._lanes:
            columns = [self._free.gpus, self._free.cpus, self._free.memory_mib]
            for number in minded:
                columns = [np.minimum(*pair) for pair in zip(columns, self.reservations[number].left, strict=True)]
            self._lanes[minded] = FreeNodes(self._free.classes, *columns)
        return self._lanes[minded]

    def start(self, pieces: list[NodeAllocation], end_s: float) -> None:
        """A job starts now on these pieces, which were taken from what is free."""
        self._started.append((end_s, pieces))
        for item in self.reservations:
            if item.start_s < end_s:
                _take(item.left, pieces)
        self._refresh(pieces)

    def reserve(self, shape: RequestShape, run_s: float) -> BackfillReservation | None:
        """Keep places for a job from the earliest time at which it will fit beside earlier reservations; ``None`` if never.

        As sched/backfill does, it may have a gap before they begin. Those that hold at any time while it runs count as held
        all that time: while these are the same ones, free capacity only grows. So for r reservations O(r log of ends)
        searches. ``run_s`` is above 0, as :func:`.estimate_runs_s` has it.
        """
        ends_s = [end_s for end_s, _ in self._started]
        times = np.unique(
            np.concatenate(([self._now_s], self._ends, ends_s, [item.end_s for item in self.reservations]))
        )
        alone = self._find_earliest(shape, times, ())
        if alone is None:
            return None
        if not self.reservations:
            return self._keep(alone.start_s, run_s, alone.pieces)
        times = times[times >= alone.start_s]
        for minded, first, last in self._spans(times, run_s):
            held = [self.reservations[number] for number in minded]
            if (fit := self._find_earliest(shape, times[first:last], held)) is not None:
                return self._keep(fit.start_s, run_s, fit.pieces)
        return None

    def _spans(self, times: FloatColumn, run_s: float) -> Iterator[tuple[IntColumn, int, int]]:
        """The reservations that hold while a job runs that starts at one of these times, and the times of which they do."""
        starts_s = np.array([item.start_s for item in self.reservations])
        ends_s = np.array([item.end_s for item in self.reservations])
        holds = (starts_s < times[:, None] + run_s) & (ends_s > times[:, None])
        bounds = [0, *(np.flatnonzero((holds[1:] != holds[:-1]).any(axis=1)) + 1).tolist(), len(times)]
        for first, last in pairwise(bounds):
            yield np.flatnonzero(holds[first]), first, last

    def _find_earliest(
        self, shape: RequestShape, times: FloatColumn, held: Sequence[BackfillReservation]
    ) -> _EarliestFit | None:
        low, high = 0, len(times)
        found: list[NodeAllocation] | None = None
        middle = high - 1  # the last one first: it decides whether the job fits at all
        while low < high:
            pieces = FreeNodes(self._free.classes, *self._free_at(float(times[middle]), held)).find(shape)
            if pieces is None:
                low = middle + 1
            else:
                high, found = middle, pieces
            middle = (low + high) // 2
        return None if found is None else _EarliestFit(float(times[high]), found)

    def _keep(self, start_s: float, run_s: float, pieces: list[NodeAllocation]) -> BackfillReservation:
        left = self._free_at(start_s, [item for item in self.reservations if item.start_s <= start_s < item.end_s])
        self._reserve(left, pieces)
        classes = frozenset(self._free.classes.of.item(piece.node) for piece in pieces)
        made = BackfillReservation(start_s, start_s + run_s, pieces, classes, left)
        for item in self.reservations:
            if made.start_s <= item.start_s < made.end_s:
                self._reserve(item.left, pieces)
        self.reservations.append(made)
        self._refresh(pieces)
        return made

    def _free_at(self, time_s: float, held: Iterable[BackfillReservation]) -> tuple[IntColumn, IntColumn, IntColumn]:
        """What is free at a time, less what these reservations hold."""
        until = int(np.searchsorted(self._ends, time_s, side="right"))
        free = (self._free.gpus.copy(), self._free.cpus.copy(), self._free.memory_mib.copy())
        for column, amounts in zip(free, self._held, strict=True):
            np.add.at(column, self._node[:until], amounts[:until])
        for end_s, pieces in self._started:
            if end_s <= time_s:
                _take(free, [NodeAllocation(p.node, -p.gpus, -p.cpus, -p.memory_mib) for p in pieces])
        for item in held:
            self._reserve(free, item.pieces)
        return free

    def _reserve(self, columns: tuple[IntColumn, IntColumn, IntColumn], pieces: list[NodeAllocation]) -> None:
        if not self._whole_nodes:
            _take(columns, pieces)
            return
        for column in columns:
            column[[piece.node for piece in pieces]] = 0

    def _refresh(self, pieces: list[NodeAllocation]) -> None:
        for minded, lane in self._lanes.items():
            kept = [self.reservations[number].left for number in minded]
            for node, *_ in pieces:
                least = [
                    max(min(amount, *(left[part].item(node) for left in kept)), 0)
                    for part, amount in enumerate(self._free.on(node))
                ]
                lane.put(node, *least)


def _take(columns: tuple[IntColumn, IntColumn, IntColumn], pieces: list[NodeAllocation]) -> None:
    for node, *amounts in pieces:
        for column, amount in zip(columns, amounts, strict=True):
            column[node] -= amount

"""One possible future: jobs take places in the plan's order as others end, until every job that waits has started."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.backfill_reservations import STATES_HOLDING_RESOURCES
from slurm_soda.policies.engine.demand import RequestShape, group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import RefusedShapes, find_too_large
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState

_NEVER = float("inf")


class ForwardPasses:
    """What all futures of one plan have in common.

    Attributes:
        rows: waiting jobs that may start some day, as rows of the job table, the most urgent first.
    """

    def __init__(self, snapshot: ClusterSnapshot, plan: Plan | None) -> None:
        """Without a plan Slurm's own priorities are the order."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        demand = group_snapshot_requests(snapshot)
        self._shapes, self._groups = demand.shapes, NodeGroups(nodes)
        self._free = (nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        ordered = _order(snapshot, plan)
        too_large = find_too_large(demand.shapes, nodes)
        self.rows: IntColumn = ordered[~too_large[demand.code[ordered]]] if len(ordered) else ordered
        holding = np.flatnonzero(np.isin(jobs.state, STATES_HOLDING_RESOURCES)).tolist()
        self._holding = [(row, list_allocations(jobs, row)) for row in holding]
        self._leaving = {jobs.row(action.job_id) for action in plan.preempts} if plan is not None else set()
        self._queues: dict[int, list[int]] = {}
        """Places in :attr:`rows`, first to last, by the number of the request."""
        for place, code in enumerate(demand.code[self.rows].tolist()):
            self._queues.setdefault(code, []).append(place)

    def run(self, left_s: FloatColumn) -> FloatColumn:
        """Seconds until each of :attr:`rows` starts, if jobs have ``left_s`` left, by row; infinite: never.

        O(n log n) in jobs, times the number of different requests that wait.
        """
        future = _Future(self._shapes, FreeNodes(self._groups, *(column.copy() for column in self._free)), self._queues)
        ends = [(0.0 if row in self._leaving else float(left_s[row]), row, pieces) for row, pieces in self._holding]
        return future.run(ends, left_s[self.rows].tolist())


def _order(snapshot: ClusterSnapshot, plan: Plan | None) -> IntColumn:
    """Rows of the waiting jobs, the most urgent first."""
    jobs = snapshot.jobs
    if plan is not None:
        rows: IntColumn = np.searchsorted(jobs.job_id, plan.order)
        return rows
    waiting = np.flatnonzero(jobs.state == JobState.PENDING)
    return waiting[np.argsort(-jobs.priority[waiting], kind="stable")]


class _Future:
    """One pass."""

    def __init__(self, shapes: Sequence[RequestShape], free: FreeNodes, queues: dict[int, list[int]]) -> None:
        self._shapes, self._free, self._queues = shapes, free, queues
        self._next = dict.fromkeys(queues, 0)
        """How many of each request have started."""
        self._least = {code: shapes[code].least for code in queues}

    def run(self, ends: list[tuple[float, int, list[NodeAllocation]]], runs_s: Sequence[float]) -> FloatColumn:
        starts_s = np.full(len(runs_s), _NEVER)
        heapify(ends)
        at_s, codes, number = 0.0, list(self._queues), len(ends)
        while True:
            for place, pieces in self._start(codes):
                starts_s[place] = at_s
                number += 1
                heappush(ends, (at_s + runs_s[place], -number, pieces))
            if not ends or not self._next:
                return starts_s
            at_s, _, pieces = heappop(ends)
            freed = {piece.node for piece in pieces}
            self._free.give(pieces)
            while ends and ends[0][0] <= at_s:
                pieces = heappop(ends)[2]
                freed.update(piece.node for piece in pieces)
                self._free.give(pieces)
            codes = self._useful(freed)

    def _useful(self, freed: set[int]) -> list[int]:
        """Requests for which one of these nodes is of use now: no other one fits now that did not fit before."""
        room = {self._free.on(node) for node in freed}
        return [
            code
            for code in self._next
            for least in (self._least[code],)
            if any(gpus >= least[0] and cpus >= least[1] and memory >= least[2] for gpus, cpus, memory in room)
        ]

    def _start(self, codes: Sequence[int]) -> list[tuple[int, list[NodeAllocation]]]:
        """Places of those that start now, in order; a request that does not fit is passed by smaller ones."""
        heads = [(self._queues[code][self._next[code]], code) for code in codes]
        heapify(heads)
        refusals, started = RefusedShapes(), []
        while heads:
            place, code = heappop(heads)
            shape = self._shapes[code]
            pieces = None if refusals.cover(shape) else self._free.find(shape)
            if pieces is None:
                refusals.add(shape)
                continue
            self._free.take(pieces)
            started.append((place, pieces))
            self._next[code] += 1
            if self._next[code] < len(self._queues[code]):
                heappush(heads, (self._queues[code][self._next[code]], code))
            else:
                del self._next[code]
        return started

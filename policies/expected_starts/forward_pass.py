"""One possible future: jobs take places in the plan's order as others end, until every job that waits has started.

Jobs are placed as policies place them, since people are told these starts; a policy that only asks within a decision about
how long a wait would be counts GPUs (:mod:`~slurm_soda.policies.sharing.soda.expected_waits`), in a hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.backfill_reservations import STATES_HOLDING_RESOURCES
from slurm_soda.policies.engine.demand import RequestShape, group_snapshot_requests
from slurm_soda.policies.engine.lift_bounds import find_tie_places
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import find_too_large
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState

_NEVER = float("inf")


class _Request(NamedTuple):
    """Something that jobs wait for."""

    shape: RequestShape
    queue: list[int]
    """Places in :attr:`ForwardPasses.rows` of those that want it, first to last."""
    at_least: frozenset[int]
    """Numbers of the requests that do not fit where this one does not."""


def _request(code: int, queue: list[int], shapes: Sequence[RequestShape], waiting: Collection[int]) -> _Request:
    shape, size = shapes[code], shapes[code].size
    at_least = (other for other in waiting if shapes[other].kind == shape.kind)
    larger = (other for other in at_least if all(map(int.__le__, size, shapes[other].size)))
    return _Request(shape, queue, frozenset(larger))


class ForwardPasses:
    """What all futures of one plan have in common.

    Attributes:
        rows: waiting jobs that may start some day, as rows of the job table, the most urgent first.
    """

    def __init__(self, snapshot: ClusterSnapshot, plan: Plan | None) -> None:
        """Without a plan Slurm's own priorities are the order."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        demand = group_snapshot_requests(snapshot)
        self._groups = NodeGroups(nodes)
        self._free = (nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        ordered = _order(snapshot, plan)
        too_large = find_too_large(demand.shapes, nodes)
        self.rows: IntColumn = ordered[~too_large[demand.code[ordered]]] if len(ordered) else ordered
        holding = np.flatnonzero(np.isin(jobs.state, STATES_HOLDING_RESOURCES)).tolist()
        self._holding = [(row, list_allocations(jobs, row)) for row in holding]
        self._leaving = {jobs.row(action.job_id) for action in plan.preempts} if plan is not None else set()
        queues: dict[int, list[int]] = {}
        for place, code in enumerate(demand.code[self.rows].tolist()):
            queues.setdefault(code, []).append(place)
        self._requests = {code: _request(code, queue, demand.shapes, queues) for code, queue in queues.items()}

    def begin(self, left_s: FloatColumn) -> PossibleFuture:
        """The future in which jobs have ``left_s`` left, by row."""
        free = FreeNodes(self._groups, *(column.copy() for column in self._free))
        ends = [(0.0 if row in self._leaving else float(left_s[row]), row, pieces) for row, pieces in self._holding]
        return PossibleFuture(self._requests, free, ends, left_s[self.rows].tolist())


def _order(snapshot: ClusterSnapshot, plan: Plan | None) -> IntColumn:
    """Rows of the waiting jobs, the most urgent first."""
    jobs = snapshot.jobs
    if plan is not None:
        rows: IntColumn = np.searchsorted(jobs.job_id, plan.order)
        return rows
    waiting = np.flatnonzero(jobs.state == JobState.PENDING)
    return waiting[np.lexsort((find_tie_places(jobs)[waiting], -jobs.priority[waiting]))]


class PossibleFuture:
    """One pass, a few events at a time.

    All of it is O(n log n) in jobs, times the number of different requests that wait.

    Attributes:
        starts_s: seconds until each of :attr:`ForwardPasses.rows` starts; infinite: never, or not yet.
    """

    def __init__(
        self,
        requests: Mapping[int, _Request],
        free: FreeNodes,
        ends: list[tuple[float, int, list[NodeAllocation]]],
        runs_s: Sequence[float],
    ) -> None:
        """``ends``: when running jobs end, a number, and what they hold; ``runs_s``: how long those that wait will run."""
        self._requests, self._free, self._ends, self._runs_s = requests, free, ends, runs_s
        self._next = dict.fromkeys(requests, 0)
        """How many of each request have started."""
        self._least = [(code, *request.shape.least) for code, request in requests.items()]
        self.starts_s = np.full(len(runs_s), _NEVER)
        heapify(ends)
        self._number = len(ends)
        self._start(0.0, list(requests))

    def advance(self, events: int) -> bool:
        """Go on for so many ends of jobs; whether nothing more can start."""
        ends, free = self._ends, self._free
        for _ in range(events):
            if not ends or not self._next:
                return True
            at_s, _, pieces = heappop(ends)
            freed = {piece.node for piece in pieces}
            free.give(pieces)
            while ends and ends[0][0] <= at_s:
                pieces = heappop(ends)[2]
                freed.update(piece.node for piece in pieces)
                free.give(pieces)
            self._start(at_s, self._useful(freed))
        return False

    def _useful(self, freed: set[int]) -> list[int]:
        """Requests for which one of these nodes is of use now: no other one fits now that did not fit before."""
        useful: dict[int, None] = {}
        for free_gpus, free_cpus, free_memory_mib in {self._free.on(node) for node in freed}:
            for code, gpus, cpus, memory_mib in self._least:
                if gpus <= free_gpus and cpus <= free_cpus and memory_mib <= free_memory_mib:
                    useful[code] = None
        return list(useful)

    def _start(self, at_s: float, codes: Sequence[int]) -> None:
        """Those that start now take their places, in order; a request that does not fit is passed by smaller ones."""
        heads = [(self._requests[code].queue[self._next[code]], code) for code in codes]
        heapify(heads)
        refused: set[int] = set()
        while heads:
            place, code = heappop(heads)
            if code in refused:
                continue
            request = self._requests[code]
            pieces = self._free.find(request.shape)
            if pieces is None:
                refused |= request.at_least
                continue
            self._free.take(pieces)
            self.starts_s[place] = at_s
            self._number += 1
            heappush(self._ends, (at_s + self._runs_s[place], -self._number, pieces))
            self._next[code] += 1
            if self._next[code] < len(request.queue):
                heappush(heads, (request.queue[self._next[code]], code))
            else:
                del self._next[code]
                self._least = [least for least in self._least if least[0] != code]

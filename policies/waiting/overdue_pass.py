"""Overdue jobs take their places before a policy is asked: first come, first served, from who can be requeued if need be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from slurm_soda.policies.engine.allocations import PreemptibleAllocations
from slurm_soda.policies.engine.demand import Demand, RequestShape, group_snapshot_requests
from slurm_soda.policies.engine.free_capacity import FreeCapacity, JobPlacement
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.placement_pass import find_too_large
from slurm_soda.policies.engine.run_time_estimates import UNKNOWN_RUN_S
from slurm_soda.policies.engine.victims import VictimSearch
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState
from slurm_soda.policies.waiting.gpu_groups import list_holders
from slurm_soda.policies.waiting.kept_places import FutureCapacity, Stay
from slurm_soda.policies.waiting.overdue import find_protected, find_sure_run_s, order_overdue

KEPT_AT_MOST = 4
"""For so many jobs of a partition places are kept on certain nodes; each costs a search. Where more are overdue and find no
places, nobody else starts on nodes that would do for those, unless it can be requeued for them."""

_NodesKey = tuple[int, int, int]
"""Requests with equal ones may use the same nodes."""

_FIRST = -1
"""Rank before all who may have to leave."""


class OverduePass:
    """Verdicts on the overdue jobs of one snapshot.

    Attributes:
        claims: places of those who start, or will once others have left, by row, in their order.
        victims: rows of running jobs that leave, with the rows of those who get their places.
        blocked: rows of those who wait on, in their order.
        behind: rows for which nobody is preempted, as they wait behind a blocked one, and the row of that one.
        unplaced: the first of those of them for whom no places are kept, and flags of the nodes that would do for it, by
            which nodes that are and by whether others are preempted for them.
        free: what is left for others.
        future: what is kept for those who wait on.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, rank_running: Callable[[], IntColumn], *, preempts: bool = True
    ) -> None:
        """``rank_running`` gives the policy's rank of each row, if somebody has to leave; who ranks worst leaves first.

        Without ``preempts`` nobody is preempted.
        """
        jobs = snapshot.jobs
        self._snapshot, self._rank_running, self._preempts = snapshot, rank_running, preempts
        self._sure_run_s = find_sure_run_s(snapshot.passing_limit_s)
        self.demand = group_snapshot_requests(snapshot)
        self.free = FreeCapacity(snapshot)
        self.stays = find_stays_s(snapshot)
        self.requeueable: BoolColumn = (
            jobs.preemptible & (jobs.gpus > 0) & ~find_protected(snapshot)
            if preempts
            else np.zeros(len(jobs), np.bool_)
        )
        self._stay_end_s = snapshot.now_s + self.stays
        sure_s = np.where(jobs.overdue, np.minimum(self._stay_end_s, snapshot.now_s + self._sure_run_s), -np.inf)
        self._stay_way_s: FloatColumn = np.where(self.requeueable, sure_s, self._stay_end_s)
        holders = list_holders(snapshot, *self._ends_s())
        self.future = FutureCapacity(snapshot.now_s, self.free.classes, holders)
        self._group = {one.rows[0]: one for one in holders if one.makes_way}
        self._search: VictimSearch | None = None
        self.claims: dict[int, JobPlacement] = {}
        self.victims: dict[int, list[int]] = {}
        self.blocked: list[int] = []
        self.behind: dict[int, int] = {}
        self.unplaced: dict[tuple[_NodesKey, bool], tuple[int, BoolColumn]] = {}
        self._masks: dict[_NodesKey, BoolColumn] = {}
        self._vacated: dict[int, list[int]] = {}
        """Rows of the groups that leave a node, by node."""

    def run(self) -> None:
        """Walk the overdue jobs.

        What is free or could be vacated only shrinks along the way, so each distinct request fails once for each set of
        places kept before it: O(requests x kept) searches, and one for each job that gets places.
        """
        rows, shapes = order_overdue(self._snapshot), self.demand.shapes
        codes = self.demand.code[rows]
        hopeless = find_hopeless(self._snapshot, self.demand, np.unique(codes).tolist())
        kept: Counter[int] = Counter()
        refused: dict[tuple[int, bool, bool], float] = {}
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            if code in hopeless:
                continue
            shape, may, stay = shapes[code], self._may_preempt(row), self.stay(row)
            if stay.end_s < refused.get((code, may, stay.way_s < stay.end_s), np.inf):
                if self._place(row, shape, stay, may):
                    continue
                refused[code, may, stay.way_s < stay.end_s] = stay.end_s
            self.blocked.append(row)
            if kept[shape.partition] < KEPT_AT_MOST and self.future.keep(
                row, shape, stay, self.free.soon, preempts=may
            ):
                kept[shape.partition] += 1
            else:
                self.unplaced.setdefault((_nodes_key(shape), may), (row, self.mask(shape)))

    def stay(self, row: int) -> Stay:
        """How long a waiting job would stay if it started now."""
        return Stay(self._stay_end_s.item(row), self._stay_way_s.item(row))

    def _ends_s(self) -> tuple[FloatColumn, FloatColumn]:
        """When each job that holds places gives them back at the latest, and when it does so for one that preempts."""
        snapshot, jobs = self._snapshot, self._snapshot.jobs
        start_s = np.where(np.isnan(jobs.start_s), snapshot.now_s, jobs.start_s)
        ends_s = np.where(jobs.state == JobState.SUSPENDED, snapshot.now_s + UNKNOWN_RUN_S, start_s + self.stays)
        ends_s = np.maximum(ends_s, snapshot.now_s)
        way_s = np.where(find_protected(snapshot), np.minimum(ends_s, start_s + self._sure_run_s), -np.inf)
        return ends_s, np.where(self.requeueable & (jobs.state == JobState.RUNNING), way_s, ends_s)

    def _may_preempt(self, row: int) -> bool:
        jobs = self._snapshot.jobs
        barred = len(jobs.may_preempt) and not jobs.may_preempt[row]
        return self._preempts and bool(jobs.gpus[row]) and not barred

    def _place(self, row: int, shape: RequestShape, stay: Stay, may: bool) -> bool:
        """Give a job places that delay nobody before it; whether there are any."""
        if self._claim(row, self._outside(self.future.find_barred(shape, stay), shape), stay, may):
            return True
        kept = self.future.find_kept_nodes(stay)
        return kept is not None and self._claim(row, self._outside(kept, shape), stay, may)

    def _outside(self, closed: BoolColumn | None, shape: RequestShape) -> RequestShape:
        """The same request on other nodes."""
        return shape if closed is None else self.free.classes.bound_to(shape, self.mask(shape) & ~closed)

    def _claim(self, row: int, shape: RequestShape, stay: Stay, may: bool) -> bool:
        found, leaving = self.free.find(shape), list[int]()
        if found is None and may:
            vacated = self._victims(shape)
            if vacated is not None:
                pieces, leaving = vacated
                found = JobPlacement(pieces, at_once=False)
        if found is None or not self.future.admits(found.pieces, stay):
            return False
        search = self._search
        for first in leaving:
            assert search is not None
            search.leave(first)
            for piece in self._group[first].pieces:
                self._vacated.setdefault(piece.node, []).append(first)
            self.victims[first] = []
        self.future.leave(leaving)
        self.free.hold(found)
        self.future.start(found.pieces, stay)
        self.claims[row] = found
        if not found.at_once:
            for first in {first for piece in found.pieces for first in self._vacated.get(piece.node, ())}:
                self.victims[first].append(row)
        return True

    def _victims(self, shape: RequestShape) -> tuple[list[NodeAllocation], list[int]] | None:
        if not self._group:
            return None
        if self._search is None:
            rank = self._rank_running()
            worst = {first: int(rank[list(one.rows)].min()) for first, one in self._group.items()}
            pieces = {first: one.pieces for first, one in self._group.items()}
            self._search = VictimSearch(PreemptibleAllocations.of_pieces(pieces, worst), self.free)
        return self._search.find(shape, _FIRST)

    def mask(self, shape: RequestShape) -> BoolColumn:
        """Nodes that would do for a request."""
        key = _nodes_key(shape)
        if key not in self._masks:
            self._masks[key] = self.free.classes.mask(shape)
        return self._masks[key]

    def find_closed(self, row: int) -> tuple[BoolColumn, int | None]:
        """Nodes on which another waiting job would delay a blocked one; and the row of the first one that it waits behind.

        A job that may take nodes which would do for a blocked one waits behind it in Slurm, unless it is over in time or
        makes way: what others vacated for it there might go to that one, or to nobody.
        """
        shape, stay = self.demand.shapes[int(self.demand.code[row])], self.stay(row)
        mask = self.mask(shape)
        barred = self.future.find_barred(shape, stay)
        closed = np.zeros(len(mask), dtype=np.bool_) if barred is None else barred & mask
        ahead = [(one.row, one.candidates) for one in self.future.find_minded(stay)]
        for (_, preempts), (first, candidates) in self.unplaced.items():
            if not (preempts and stay.way_s == -np.inf):
                closed = closed | (candidates & mask)
                ahead.append((first, candidates))
        return closed, next((first for first, candidates in ahead if bool((candidates & mask).any())), None)

    def members(self, first: int) -> tuple[int, ...]:
        """All who leave with a victim."""
        return self._group[first].rows


def find_hopeless(snapshot: ClusterSnapshot, demand: Demand, codes: Sequence[int]) -> set[int]:
    """Requests that the nodes could not serve if nobody else were there: such a job keeps nothing from anybody.

    Nodes that are down do not count: nobody can say when they come back, and others may have the rest until then.
    """
    nodes, shapes = snapshot.nodes, [demand.shapes[code] for code in codes]
    found = {code for code, flag in zip(codes, find_too_large(shapes, nodes).tolist(), strict=True) if flag}
    if not nodes.usable.all():
        whole = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
        found |= {code for code, shape in zip(codes, shapes, strict=True) if whole.find(shape) is None}
    return found


def _nodes_key(shape: RequestShape) -> _NodesKey:
    return (shape.partition, shape.gpu_type, shape.node_set)


def find_stays_s(snapshot: ClusterSnapshot) -> FloatColumn:
    """How long each job may run: its time limit, or for want of one as long as sched/backfill takes it to."""
    limit_s = snapshot.jobs.time_limit_s
    return np.where(np.isfinite(limit_s), limit_s, UNKNOWN_RUN_S)

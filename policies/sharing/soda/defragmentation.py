"""Running jobs that move so that a waiting one fits: enough GPUs are free for it, but on no node enough of them.

Let k wait for nodes of which each must have so many GPUs, and let T be how long it is expected to, as those who run end.
If running jobs i move to what is free elsewhere, k starts now. So it ends T earlier, and each of the b jobs that wait
behind it by its share of the GPU seconds that are done meanwhile: the moves gain

    T (1 + b g_k / G),

and cost the price of preempting each i, as for anybody who makes way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.even_shares import count_shares, flag_fitting, limit_to_others
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.soda.fitting_waits import FittingWaits, HeldPlaces
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState

MOST_ASKED = 16
"""Requests of one decision for which somebody may move; and"""
MOST_NODES = 8
"""nodes of which it is found out for each who would leave them, those that lack the fewest GPUs first; and"""
MOST_TRIED = 2
"""of these, how many times it is tried to place all who would leave. All three only bound the work."""


class _Share(NamedTuple):
    """What one job holds on a node."""

    row: int
    amounts: list[int]
    """GPUs, CPUs, memory in MiB."""


class _Cleared(NamedTuple):
    """A node on which a job fits once these have moved."""

    node: int
    rows: list[int]


class Defragmentation:
    """Of one decision, after all others have their places."""

    def __init__(
        self,
        placing: PlacementPass,
        ranked: IntColumn,
        *,
        movable: BoolColumn,
        reclaimable: BoolColumn,
        price_s: FloatColumn,
        total_gpus: int,
    ) -> None:
        """Take in the decision so far.

        Args:
            placing: the places.
            ranked: rows of GPU jobs in the policy's order.
            movable: by row, who may be preempted and shares no GPU.
            reclaimable: by row, who makes way for jobs that rank before it.
            price_s: by row, what it costs all jobs if it is, in seconds.
            total_gpus: of the cluster.
        """
        self._placing, self._price_s, self._total_gpus = placing, price_s, total_gpus
        self._waiting, self._jobs = placing.candidates(ranked), placing.snapshot.jobs
        self._reclaimable = reclaimable
        self._position = np.full(len(self._jobs), len(ranked), dtype=np.int64)
        self._position[ranked] = np.arange(len(ranked))
        stays = np.isin(placing.verdict, (JobVerdict.RUN, JobVerdict.PROTECTED))
        self._movable: BoolColumn = movable & stays
        self._held = HeldPlaces.of_rows(self._jobs, np.flatnonzero(stays & (self._jobs.state == JobState.RUNNING)))
        self._waits = FittingWaits(placing)
        self._on_node: dict[int, list[_Share]] = {}
        self._leaving: BoolColumn | None = None
        """Which entries are of jobs that can move and fit elsewhere."""

    def run(self) -> tuple[PreemptJob, ...]:
        """Who moves, for whom.

        O(requests asked x (nodes + running jobs log running jobs)), in numpy; nothing where too few GPUs are free.
        """
        found: list[PreemptJob] = []
        refused: set[RequestShape] = set()
        free, asked = self._count_free(), 0
        for at, row in enumerate(self._waiting.tolist()):
            shape = self._placing.demand.shapes[int(self._placing.demand.code[row])]
            if not free or asked == MOST_ASKED:
                break
            if free < shape.gpus * shape.nodes or shape in refused or not self._may_ask(row, shape):
                continue
            asked += 1
            moves = self._clear_for(row, shape, len(self._waiting) - at - 1)
            if not moves:
                refused.add(shape)
            found += moves
            free = self._count_free()
        return tuple(found)

    def _count_free(self) -> int:
        return int(self._placing.free_capacity.soon.gpus.sum())

    def _may_ask(self, row: int, shape: RequestShape) -> bool:
        may_preempt = self._jobs.may_preempt
        barred = row in self._placing.behind or bool(len(may_preempt) and not may_preempt[row])
        return shape.wants_gpus and shape.is_even and not barred

    def _clear_for(self, row: int, shape: RequestShape, behind: int) -> list[PreemptJob]:
        """Who moves for one job, so that it starts once they have left; nobody if that costs more than it gains."""
        spare = self._placing.free_capacity.now.fitting_nodes(shape)
        cleared = [self._clear(node, shape, row) for node in self._find_nodes(shape, spare)]
        choices = sorted((one for one in cleared if one is not None), key=lambda one: (self._price(one.rows), one.node))
        lacking = shape.nodes - len(spare)
        if not 0 < lacking <= len(choices):
            return []
        wait_s = self._waits.expect_s(shape)
        gain_s = wait_s * (1.0 + behind * float(self._jobs.gpus[row]) / self._total_gpus)
        for first in range(min(len(choices) - lacking + 1, MOST_TRIED)):
            chosen = choices[first : first + lacking]
            movers = sorted({mover for one in chosen for mover in one.rows}, key=lambda one: -int(self._jobs.gpus[one]))
            if self._price(movers) >= gain_s:
                break
            if self._move(row, shape, [*spare, *(one.node for one in chosen)], movers):
                return [self._tell(mover, row, wait_s) for mover in movers]
        return []

    def _price(self, rows: Sequence[int]) -> float:
        return float(self._price_s[list(rows)].sum())

    def _find_nodes(self, shape: RequestShape, spare: Sequence[int]) -> list[int]:
        """Nodes on which it would fit if all who can move were gone; those that lack the fewest GPUs first."""
        free = self._placing.free_capacity.now
        leaving = self._held.sum_on(len(free.gpus), np.flatnonzero(self._find_leaving()))
        fits = flag_fitting(free, shape, limit_to_others(free, leaving))
        fits[list(spare)] = False
        nodes = np.flatnonzero(fits)
        fullest_last = np.argsort(-free.gpus[nodes], kind="stable")
        few: list[int] = nodes[fullest_last][:MOST_NODES].tolist()
        return few

    def _clear(self, node: int, shape: RequestShape, row: int) -> _Cleared | None:
        """Who moves from a node: of the cheapest ones and the largest ones that are enough, those that cost less."""
        now = self._placing.free_capacity.now
        wanted = shape.gpus, now.classes.cpus_on(shape, node), shape.memory_mib
        lacking = [want - free for want, free in zip(wanted, now.on(node), strict=True)]
        there, band = self._list_movable(node), self._jobs.band
        if len(band):  # nobody of a better band moves
            there = [one for one in there if band[one.row] >= band[row]]
        if max(lacking) <= 0 or not _enough(there, lacking):
            return None  # what keeps it away may be nothing that anybody holds
        choices = [_choose(there, lacking), _choose(sorted(there, key=lambda one: -one.amounts[0]), lacking)]
        return _Cleared(node, min(choices, key=self._price))

    def _find_leaving(self) -> BoolColumn:
        """Entries of jobs that can move and fit on other nodes; of those alike on a node the cheapest, as many as fit."""
        if self._leaving is None:
            free, demand, held = self._placing.free_capacity.now, self._placing.demand, self._held
            leaving, code = self._movable[held.row], demand.code[held.row]
            for number in np.unique(code[leaving]).tolist():
                shape = demand.shapes[number]
                if shape.is_even:
                    shares, alike = count_shares(free, shape), np.flatnonzero(leaving & (code == number))
                    room = (shares.sum() - shares)[held.node[alike]] // shape.nodes
                    leaving[alike] = self._count_cheaper(alike) < room
            self._leaving = leaving
        return self._leaving

    def _count_cheaper(self, entries: IntColumn) -> IntColumn:
        """How many of these on the same node come before each, the cheapest first."""
        node = self._held.node[entries]
        order = np.lexsort((self._price_s[self._held.row[entries]], node))
        first = np.searchsorted(node[order], node[order], side="left")
        found = np.empty(len(entries), dtype=np.int64)
        found[order] = np.arange(len(entries)) - first
        return found

    def _list_movable(self, node: int) -> list[_Share]:
        """Who can move from a node, the cheapest first."""
        if node not in self._on_node:
            held = self._held
            there = np.flatnonzero((held.node == node) & self._find_leaving())
            there = there[np.argsort(self._price_s[held.row[there]], kind="stable")]
            shares = zip(held.row[there].tolist(), held.amounts[there].tolist(), strict=True)
            self._on_node[node] = [_Share(*share) for share in shares]
        return self._on_node[node]

    def _move(self, row: int, shape: RequestShape, nodes: Sequence[int], movers: Sequence[int]) -> bool:
        """Give a job these nodes, and who is there what is free elsewhere on no more nodes; or change nothing."""
        placing, capacity = self._placing, self._placing.free_capacity
        held = {mover: list_allocations(self._jobs, mover) for mover in movers}
        if self._goes_to_others(row, shape, held):
            return False
        for pieces in held.values():
            capacity.vacate(pieces)
        cpus_on = capacity.classes.cpus_on
        own = [NodeAllocation(node, shape.gpus, cpus_on(shape, node), shape.memory_mib) for node in nodes]
        claims = {row: JobPlacement(own, at_once=False)}
        capacity.hold(claims[row])
        for mover in movers:
            claim = capacity.find(placing.demand.shapes[int(placing.demand.code[mover])])
            if claim is None or not claim.at_once or len(claim.pieces) > len(held[mover]):
                for taken in claims.values():
                    capacity.undo(taken)
                for pieces in held.values():
                    capacity.reoccupy(pieces)
                return False
            capacity.hold(claim)
            claims[mover] = claim
        for mover in movers:
            placing.verdict[mover] = JobVerdict.PREEMPT
            self._movable[mover] = False
        self._on_node.clear()
        self._leaving = None
        self._waits.look_anew()
        placing.unheld.discard(row)
        for each, claim in claims.items():
            placing.record(each, claim)
        return True

    def _goes_to_others(self, row: int, shape: RequestShape, held: Mapping[int, list[NodeAllocation]]) -> bool:
        """Whether jobs that rank before this one would take what the movers leave, of whom it is told what they hold.

        Once they have left, the next decision places all in their order: a mover that ranks before the job that it moves for
        might go back to where it came from, again and again.
        """
        demand, order = self._placing.demand, self._position
        free = self._placing.free_capacity.now.copy()
        for pieces in held.values():
            free.give(pieces)
        if any(self._takes(one, free, held) for one in self._list_before(row)):
            return True
        for mover in sorted(held, key=lambda one: int(order[one])):
            if order[mover] < order[row]:
                free.take(free.find(demand.shapes[int(demand.code[mover])]) or [])
        return free.find(shape) is None

    def _list_before(self, row: int) -> list[int]:
        """Who ranks before a job and waits, the first of each request."""
        placing, order = self._placing, self._position
        rows = self._waiting[order[self._waiting] < order[row]].tolist()
        waits = [one for one in rows if one not in placing.behind and one not in placing.claims]
        return list({int(placing.demand.code[one]): one for one in waits[::-1]}.values())

    def _takes(self, row: int, free: FreeNodes, leaving: Collection[int]) -> bool:
        """Whether a job could start with this room, preempting others if need be."""
        shape, held = self._placing.demand.shapes[int(self._placing.demand.code[row])], self._held
        if free.find(shape) is not None:
            return True
        make_way = self._reclaimable & (self._position > self._position[row])
        make_way[list(leaving)] = False
        more = held.sum_on(len(free.gpus), np.flatnonzero(make_way[held.row]))
        return shape.is_even and int(np.count_nonzero(flag_fitting(free, shape, more))) >= shape.nodes

    def _tell(self, mover: int, row: int, wait_s: float) -> PreemptJob:
        job_id = int(self._jobs.job_id[row])
        reason = f"it moves to other free GPUs, so that job {job_id} fits, which would wait for {wait_s:.0f} s"
        return PreemptJob(int(self._jobs.job_id[mover]), (job_id,), reason, moves=True)


def _enough(shares: Sequence[_Share], lacking: Sequence[int]) -> bool:
    return all(sum(one.amounts[at] for one in shares) >= lacks for at, lacks in enumerate(lacking))


def _choose(shares: Sequence[_Share], lacking: Sequence[int]) -> list[int]:
    """The first of them that are enough, without those that need not move, last ones first."""
    needed: list[_Share] = []
    for share in shares:
        if _enough(needed, lacking):
            break
        needed.append(share)
    for last in needed[::-1]:
        others = [one for one in needed if one is not last]
        if _enough(others, lacking):
            needed = others
    return [one.row for one in needed]

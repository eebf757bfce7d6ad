"""What it costs all jobs together to start a gang on more nodes than it needs, and what to wait for fewer nodes.

A job k with work w left, on g of G GPUs, would run s times as long on the nodes that are free now. Each of the b jobs that
wait behind it ends later by what k takes longer, spread over the cluster. So to start now costs

    (s - 1) w (1 + b g / G).

To wait costs the time t until it has the fewest nodes, and, as what is free there is kept for it, every waiting job behind
it a share of what these GPUs would have done meanwhile, I GPU seconds:

    t + b I / G.

The work left is the median of what is expected, and the ends of others are means: where one or the other is uncertain, that
is in favour of starting now.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, split_memory_mib
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import (
    FreeNodes,
    NodeAllocation,
    NodeGroups,
    count_slots,
    split_over_nodes,
)
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState


class PackedPlace(NamedTuple):
    """The fewest nodes for a job, once those who run there have ended."""

    wait_s: float
    idle_gpu_s: float
    """What its GPUs there would do for others until then."""
    keep: list[NodeAllocation]
    """What of it is free now."""


class SpreadCosts:
    """Of one decision, as jobs stand when it is made."""

    def __init__(self, placing: PlacementPass, ranked: IntColumn, total_gpus: int, prices_s: FloatColumn) -> None:
        """``ranked``: rows in the policy's order; ``prices_s``: by row, what a preemption costs a job on each GPU."""
        self._placing, self._snapshot, self._total_gpus, self._prices_s = (
            placing,
            placing.snapshot,
            total_gpus,
            prices_s,
        )
        nodes = self._snapshot.nodes
        self._whole = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
        self._fewest: dict[RequestShape, int] = {}
        self._wait_behind = self._count_behind(ranked)
        self.kept: BoolColumn = np.zeros(len(nodes), dtype=np.bool_)
        """Nodes that are kept for somebody already."""
        self._ends: tuple[FloatColumn, IntColumn, IntColumn, IntColumn, IntColumn] | None = None

    def fewest_nodes(self, shape: RequestShape) -> int:
        """On how many nodes a request would be if nobody else were there; 0: nowhere, or it is told how to be split."""
        if shape not in self._fewest:
            loose = shape.units > 0 and shape.wants_gpus and not shape.whole_nodes
            self._fewest[shape] = len(self._whole.find(shape) or ()) if loose else 0
        return self._fewest[shape]

    def extra_nodes(self, row: int) -> int:
        """On how many nodes more than needed a running job is."""
        jobs, demand = self._snapshot.jobs, self._placing.demand
        held = jobs.alloc_gpus[int(jobs.alloc_start[row]) : int(jobs.alloc_start[row + 1])]
        fewest = self.fewest_nodes(demand.shapes[int(demand.code[row])])
        return int(np.count_nonzero(held)) - fewest if fewest else 0

    def work_s(self, row: int) -> float:
        """Work left to a job, alone on the fewest nodes; NaN where nobody knows."""
        jobs = self._snapshot.jobs
        left_s = float(np.median(expect_remaining_s(self._snapshot, np.array([row]))[0]))
        present_s = self._snapshot.now_s - float(jobs.start_s[row]) if jobs.state[row] == JobState.RUNNING else 0.0
        return min(left_s, max(float(jobs.time_limit_s[row]) - present_s, 0.0))

    def weigh(self, row: int, later_s: float) -> float:
        """What it costs all if a job ends so much later, for which it holds its GPUs."""
        return later_s * (1.0 + self._wait_behind.get(row, 0) * float(self._snapshot.jobs.gpus[row]) / self._total_gpus)

    def start_spread(self, row: int, extra_nodes: int, place: PackedPlace | None) -> float:
        """What it costs to start a job now on so many nodes more than needed; 0 where nobody knows.

        Where nobody waits behind it and it may be preempted, it moves as soon as it has a packed place.
        """
        slowdown, work_s = self._snapshot.spread.expect(row, extra_nodes), self.work_s(row)
        if not work_s < math.inf:
            return 0.0
        later_s = (slowdown - 1.0) * work_s
        if place is not None and not self._wait_behind.get(row, 0) and self._snapshot.jobs.preemptible[row]:
            later_s = min(later_s, place.wait_s * (1.0 - 1.0 / slowdown) + float(self._prices_s[row]))
        return self.weigh(row, later_s)

    def wait_packed(self, row: int, place: PackedPlace) -> float:
        """What it costs to wait for a place."""
        return place.wait_s + self._wait_behind.get(row, 0) * place.idle_gpu_s / self._total_gpus

    def find_packed(self, shape: RequestShape) -> PackedPlace | None:
        """The first place on the fewest nodes as those who run end; none of nodes that are kept for others.

        A bisection over ends: O(log running x (running + nodes log nodes)), in numpy.
        """
        end_s, node, gpus, cpus, memory_mib = self._find_ends()
        soon = self._placing.free_capacity.soon
        low, high = 0, len(end_s)
        best: list[NodeAllocation] | None = None
        while low <= high:
            middle = (low + high) // 2
            columns = [column.copy() for column in (soon.gpus, soon.cpus, soon.memory_mib)]
            for column, freed in zip(columns, (gpus, cpus, memory_mib), strict=True):
                np.add.at(column, node[:middle], freed[:middle])
            usable = soon.classes.usable(shape, columns[1]) & ~self.kept
            found = split_over_nodes(shape, np.where(usable, count_slots(shape, *columns), 0))
            if found is None:
                low = middle + 1
            else:
                high, best = middle - 1, found
        if best is None:
            return None
        wait_s = float(end_s[low - 1]) if low else 0.0
        return PackedPlace(wait_s, self._idle_gpu_s(best, wait_s), self._free_now(best))

    def _idle_gpu_s(self, pieces: list[NodeAllocation], wait_s: float) -> float:
        end_s, node, gpus, _, _ = self._find_ends()
        soon, idle = self._placing.free_capacity.soon, 0.0
        for piece in pieces:
            free = min(piece.gpus, soon.on(piece.node)[0])
            idle += free * wait_s
            for at in np.flatnonzero((node == piece.node) & (end_s < wait_s)).tolist():
                taken = min(int(gpus[at]), piece.gpus - free)
                free, idle = free + taken, idle + taken * (wait_s - float(end_s[at]))
        return idle

    def _free_now(self, pieces: list[NodeAllocation]) -> list[NodeAllocation]:
        now = self._placing.free_capacity.now
        free = [(piece, now.on(piece.node)) for piece in pieces]
        return [
            NodeAllocation(piece.node, *(min(one, other) for one, other in zip(piece[1:], left, strict=True)))
            for piece, left in free
        ]

    def _find_ends(self) -> tuple[FloatColumn, IntColumn, IntColumn, IntColumn, IntColumn]:
        """When running jobs are expected to end, from now, first to last, with node, GPUs, CPUs and memory of each piece."""
        if self._ends is None:
            jobs, spread = self._snapshot.jobs, self._snapshot.spread
            stays = (jobs.state == JobState.RUNNING) & (self._placing.verdict != JobVerdict.PREEMPT)
            rows = np.flatnonzero(stays)
            left_s = expect_remaining_s(self._snapshot, rows).mean(axis=1) if len(rows) else np.zeros(0)
            slower = [
                spread.expect(row, self.extra_nodes(row)) if spread.kind[row] >= 0 else 1.0 for row in rows.tolist()
            ]
            limit_s = jobs.time_limit_s[rows] - (self._snapshot.now_s - jobs.start_s[rows])
            left_s = np.fmin(left_s * np.array(slower), np.maximum(limit_s, 0.0))
            known = np.isfinite(left_s)
            rows, left_s = rows[known], left_s[known]
            order = np.argsort(left_s, kind="stable")
            owner, entry = find_allocation_entries(jobs, rows[order])
            end_of = np.zeros(len(jobs))
            end_of[rows] = left_s
            memory_mib = split_memory_mib(jobs, owner, entry)
            held = (jobs.alloc_node[entry], jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_mib)
            self._ends = (end_of[owner], *held)
        return self._ends

    def _count_behind(self, ranked: IntColumn) -> dict[int, int]:
        """By row of a waiting job, how many wait behind it beyond those for whom GPUs are free now."""
        rows = self._placing.candidates(ranked)
        gpus = self._snapshot.jobs.gpus[rows]
        waits = np.cumsum(gpus) > int(self._placing.free_capacity.now.gpus.sum())
        behind = np.concatenate((np.cumsum(waits[::-1])[::-1][1:], [0])) if len(rows) else rows
        return dict(zip(rows.tolist(), behind.tolist(), strict=True))

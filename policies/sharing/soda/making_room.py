"""Running jobs that move so that a waiting one fits: GPUs are free for it, but on no node enough of them.

Let k wait for nodes of which each must have so many GPUs, and let T be how long it is expected to, as those who run end.
If running jobs i move to what is free elsewhere, k starts now. So it ends T earlier, and each of the b jobs that wait
behind it by its share of the GPU seconds that are done meanwhile: the moves gain

    T (1 + b g_k / G),

and cost the price of preempting each i, as for anybody who makes way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, list_allocations, split_memory_mib
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.soda.expected_waits import draw_values
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState

MOST_ASKED = 16
"""Waiting jobs of one decision for which room may be made; and"""
MOST_NODES = 8
"""nodes that are tried for each, those that lack the fewest GPUs first."""
DRAWS = 4
"""Of the times at which running jobs end."""


class _Held(NamedTuple):
    """What some rows hold, a node an entry."""

    row: IntColumn
    node: IntColumn
    gpus: IntColumn
    cpus: IntColumn
    memory_mib: IntColumn


class RoomMaker:
    """Of one decision, once everybody else has his places."""

    def __init__(
        self, placing: PlacementPass, waiting: IntColumn, movable: BoolColumn, price_s: FloatColumn, total_gpus: int
    ) -> None:
        """Take in the decision so far.

        Args:
            placing: the places.
            waiting: rows of those without places, in order.
            movable: by row, who may be preempted, and shares no GPU.
            price_s: by row, what it costs all jobs if it is.
            total_gpus: of the cluster.
        """
        self._placing, self._waiting, self._price_s, self._total_gpus = placing, waiting, price_s, total_gpus
        self._jobs = placing.snapshot.jobs
        runs = self._jobs.state == JobState.RUNNING
        stays = np.isin(placing.verdict, (JobVerdict.RUN, JobVerdict.PROTECTED))
        self._movable: BoolColumn = movable & runs & stays
        self._held = self._list_held(np.flatnonzero(runs & stays))
        self._ends_s = self._draw_ends()

    def run(self) -> tuple[PreemptJob, ...]:
        """Who moves, for whom."""
        found: list[PreemptJob] = []
        free, asked = self._placing.free_capacity.soon, 0
        refused: set[RequestShape] = set()
        for at, row in enumerate(self._waiting.tolist()):
            shape = self._placing.demand.shapes[int(self._placing.demand.code[row])]
            if not self._may_ask(row, shape) or shape in refused:
                continue
            if int(free.gpus.sum()) < shape.gpus * shape.nodes:
                continue
            asked += 1
            if asked > MOST_ASKED:
                break
            moves = self._make_room(row, shape, len(self._waiting) - at - 1)
            free = self._placing.free_capacity.soon
            if not moves:
                refused.add(shape)
            found += moves
        return tuple(found)

    def _may_ask(self, row: int, shape: RequestShape) -> bool:
        may_preempt = self._jobs.may_preempt
        return (
            shape.wants_gpus
            and shape.is_even
            and row not in self._placing.behind
            and (not len(may_preempt) or bool(may_preempt[row]))
        )

    def _make_room(self, row: int, shape: RequestShape, behind: int) -> list[PreemptJob]:
        spare = self._placing.free_capacity.soon.fitting_nodes(shape)
        nodes = self._find_nodes(shape, spare)
        lacking = shape.nodes - len(spare)
        if not 0 < lacking <= len(nodes):
            return []
        wait_s = self._expect_wait_s(shape)
        gain_s = wait_s * (1.0 + behind * float(self._jobs.gpus[row]) / self._total_gpus)
        priced = [(float(self._price_s[rows].sum()), node, rows) for node, rows in self._list_movers(row, shape, nodes)]
        priced.sort(key=lambda one: one[:2])
        if lacking == 1:
            choices = [([node], rows, price) for price, node, rows in priced]
        else:
            first = priced[:lacking]
            rows = sorted({each for _, _, rows in first for each in rows})
            choices = [([node for _, node, _ in first], rows, sum(p for p, _, _ in first))] if len(first) == lacking else []
        for chosen, rows, price_s in choices:
            if price_s >= gain_s:
                break
            claims = self._try([*spare, *chosen], rows, shape)
            if claims is not None:
                return self._carry_out(row, rows, claims, wait_s)
        return []

    def _find_nodes(self, shape: RequestShape, spare: Sequence[int]) -> list[int]:
        """Nodes that would do if those who can move were gone; those that lack the fewest GPUs first."""
        soon, held = self._placing.free_capacity.soon, self._held
        mine = self._movable[held.row]
        columns = [soon.gpus.copy(), soon.cpus.copy(), soon.memory_mib.copy()]
        for column, amounts in zip(columns, held[2:], strict=True):
            np.add.at(column, held.node[mine], amounts[mine])
        usable = soon.classes.usable(shape, columns[1])
        enough = (columns[0] >= shape.gpus) & (columns[1] >= shape.cpus) & (columns[2] >= shape.memory_mib)
        would = usable & enough
        would[list(spare)] = False
        nodes = np.flatnonzero(would)
        return nodes[np.argsort(shape.gpus - soon.gpus[nodes], kind="stable")][:MOST_NODES].tolist()

    def _list_movers(self, row: int, shape: RequestShape, nodes: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Who would leave each node, the cheapest ones that are enough."""
        soon, found = self._placing.free_capacity.soon, []
        for node in nodes:
            there = np.flatnonzero((self._held.node == node) & self._movable[self._held.row])
            there = there[np.argsort(self._price_s[self._held.row[there]], kind="stable")]
            free = soon.on(node)
            cpus = soon.classes.cpus_on(shape, node)
            lacks = np.array([shape.gpus - free[0], cpus - free[1], shape.memory_mib - free[2]])
            amounts = np.stack([self._held.gpus[there], self._held.cpus[there], self._held.memory_mib[there]], axis=1)
            taken: list[int] = []
            for at in range(len(there)):
                if (lacks <= 0).all():
                    break
                lacks = lacks - amounts[at]
                taken.append(at)
            if (lacks > 0).any():
                continue
            for at in sorted(taken, key=lambda one: -self._price_s[self._held.row[there[one]]]):
                if (lacks + amounts[at] <= 0).all():
                    lacks = lacks + amounts[at]
                    taken.remove(at)
            rows = [int(self._held.row[there[at]]) for at in taken]
            band = self._jobs.band
            if len(band) and any(band[one] < band[row] for one in rows):
                continue
            found.append((node, rows))
        return found

    def _try(self, nodes: Sequence[int], rows: Sequence[int], shape: RequestShape) -> list[JobPlacement] | None:
        """Places of the job and of those who move, all held; ``None``, and nothing changed: somebody has none."""
        capacity, demand = self._placing.free_capacity, self._placing.demand
        pieces = {row: list_allocations(self._jobs, row) for row in rows}
        for each in pieces.values():
            capacity.vacate(each)
        cpus_on = capacity.classes.cpus_on
        claims = [
            JobPlacement(
                [NodeAllocation(node, shape.gpus, cpus_on(shape, node), shape.memory_mib) for node in nodes], at_once=False
            )
        ]
        capacity.hold(claims[0])
        for row in sorted(rows, key=lambda one: -int(self._jobs.gpus[one])):
            claim = capacity.find(demand.shapes[int(demand.code[row])])
            if claim is None or not claim.at_once:
                for held in claims:
                    capacity.undo(held)
                for each in pieces.values():
                    capacity.reoccupy(each)
                return None
            capacity.hold(claim)
            claims.append(claim)
        return claims

    def _carry_out(self, row: int, rows: Sequence[int], claims: Sequence[JobPlacement], wait_s: float) -> list[PreemptJob]:
        placing, found = self._placing, []
        placing.unheld.discard(row)
        placing.record(row, claims[0])
        for mover, claim in zip(sorted(rows, key=lambda one: -int(self._jobs.gpus[one])), claims[1:], strict=True):
            placing.verdict[mover] = JobVerdict.PREEMPT
            placing.record(mover, claim)
            self._movable[mover] = False
            reason = f"it moves, so that job {self._jobs.job_id[row]} fits, which would wait for {wait_s:.0f} s"
            found.append(PreemptJob(int(self._jobs.job_id[mover]), (int(self._jobs.job_id[row]),), reason))
        return found

    def _expect_wait_s(self, shape: RequestShape) -> float:
        """When a job would fit, as running jobs end: the mean of a few draws."""
        return float(np.mean([self._find_wait_s(shape, ends_s) for ends_s in self._ends_s]))

    def _find_wait_s(self, shape: RequestShape, ends_s: FloatColumn) -> float:
        soon, held = self._placing.free_capacity.soon, self._held
        order = np.argsort(ends_s, kind="stable")
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            gone = order[:middle]
            columns = [soon.gpus.copy(), soon.cpus.copy(), soon.memory_mib.copy()]
            for column, amounts in zip(columns, held[2:], strict=True):
                np.add.at(column, held.node[gone], amounts[gone])
            fits = (columns[0] >= shape.gpus) & (columns[1] >= shape.cpus) & (columns[2] >= shape.memory_mib)
            if np.count_nonzero(fits & soon.classes.usable(shape, columns[1])) >= shape.nodes:
                high = middle
            else:
                low = middle + 1
        return float(ends_s[order[low - 1]]) if len(order) else 0.0

    def _list_held(self, rows: IntColumn) -> _Held:
        owner, entry = find_allocation_entries(self._jobs, rows)
        jobs = self._jobs
        memory_mib = split_memory_mib(jobs, owner, entry)
        return _Held(owner, jobs.alloc_node[entry], jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_mib)

    def _draw_ends(self) -> list[FloatColumn]:
        """Seconds until each entry is free, drawn a few times."""
        rows = np.unique(self._held.row)
        if not len(rows):
            return [np.zeros(0)]
        values = expect_remaining_s(self._placing.snapshot, rows)
        limit_s = self._jobs.time_limit_s[rows] - (self._placing.snapshot.now_s - self._jobs.start_s[rows])
        values = np.fmin(values, np.maximum(limit_s, 0.0)[:, None])
        values = np.where(np.isnan(values), 0.0, values)
        at = np.searchsorted(rows, self._held.row)
        draws = DRAWS if values.shape[1] > 1 else 1
        return [np.array(draw_values(values, draw, 0))[at] for draw in range(draws)]

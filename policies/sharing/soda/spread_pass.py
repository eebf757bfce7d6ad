"""Places of ``soda`` where it was measured how much slower jobs run on more nodes than they need.

Who is slowed little fills holes, so that whole nodes are left for others. Who is slowed much starts on more nodes than it
needs only if that costs less than to wait for fewer, or than to preempt others there (:mod:`.spread_costs`). All other jobs
are placed as without any of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import Demand, RequestShape, group_equal_rows, group_snapshot_requests
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass, RefusedShapes
from slurm_soda.policies.engine.preemption import PreemptivePass
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.soda.spread_costs import PackedPlace, SpreadCosts
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable

FILLS_HOLES_BELOW = 1.1
"""A job that is slowed by less than a tenth, errors included, takes what others leave; a tenth is also what counts as slower
where PACKLIMIT is learned (docs/policies/consolidation.md)."""
MOST_WAITS = 16
"""Jobs of one decision for which a packed place is looked for; others start where they can."""
_MOST_MOVES = 4
"""Running jobs of one decision that move to fewer nodes."""
_PlacesAndVictims = tuple[list[NodeAllocation], list[int]]


def find_demand(snapshot: ClusterSnapshot) -> Demand | None:
    """Requests of a snapshot, those of insensitive kinds bound to fill holes; ``None``: there are no such kinds."""
    spread = snapshot.spread
    if not spread.decides:
        return None
    little = np.append((spread.at_most < FILLS_HOLES_BELOW).all(axis=1), False)[spread.kind]
    if not little.any():
        return None
    demand = group_snapshot_requests(snapshot)
    loose = np.array([shape.units > 0 and shape.wants_gpus for shape in demand.shapes], dtype=np.bool_)[demand.code]
    fills: IntColumn = (little & loose).astype(np.int64)
    first, code = group_equal_rows((demand.code, fills))
    shapes = tuple(
        demand.shapes[int(demand.code[row])]._replace(fills_holes=bool(fills[row])) for row in first.tolist()
    )
    return replace(demand, code=code, shapes=shapes)


class SpreadPass(PreemptivePass):
    """The pass of a preemptive policy, in which a job may wait for fewer nodes than it could have now.

    What is free on the nodes that it waits for is kept for it in this decision. The next one weighs anew.

    Attributes:
        next_s: in how many seconds the first of the places that are waited for should be there; infinite: none is.
    """

    def __init__(
        self,
        placing: PlacementPass,
        ranked: IntColumn,
        reclaimable: BoolColumn,
        holding: JobTable | None,
        *,
        costs: SpreadCosts,
        price_s: FloatColumn,
    ) -> None:
        """``price_s``: by row, what it costs all jobs to preempt a running one."""
        super().__init__(placing, ranked, reclaimable, holding)
        self._costs, self._price_s, self._spread = costs, price_s, placing.snapshot.spread
        self._keeps: list[JobPlacement] = []
        self._packed: set[int] = set()
        """Rows that are bound to the fewest nodes."""
        self._asked = 0
        self.next_s = math.inf

    def _walk(self) -> None:
        for keep in self._keeps:
            self._placing.free_capacity.undo(keep)
        self._keeps, self._asked, self.next_s = [], 0, math.inf
        for row in self._packed - self._placing.claims.keys():
            self._bound.pop(row, None)
        self._costs.kept[:] = False
        super()._walk()

    def _claim(self, row: int, rank: int, shape: RequestShape, refusals: RefusedShapes) -> bool:
        fewest = self._costs.fewest_nodes(shape)
        if not fewest or self._spread.expect(row, 1) <= 1.0 or refusals.cover(shape):
            return super()._claim(row, rank, shape, refusals)
        packed = shape._replace(most_nodes=fewest, fills_holes=False)
        free_capacity = self._placing.free_capacity
        claim = free_capacity.find(packed)
        if claim is None:
            free = free_capacity.find(shape)
            claim = self._preempt_for(packed, rank) if free is None else None
            if claim is None:
                found = (free.pieces, []) if free is not None else self._search.find(shape, rank)
                if found is None:
                    refusals.add(shape)
                    return False
                claim = self._weigh(row, rank, packed, found, free)
                if claim is None:
                    return True  # it waits for fewer nodes
        if len(claim.pieces) <= fewest:
            self._bound[row] = packed
            self._packed.add(row)
        self._placing.claim(row, claim)
        self._note_waiter(row, claim)
        return True

    def _weigh(
        self, row: int, rank: int, packed: RequestShape, spread: _PlacesAndVictims, free: JobPlacement | None
    ) -> JobPlacement | None:
        """The cheapest of: more nodes than needed, the fewest ones from which others are preempted, or none for now.

        Args:
            row: the job.
            rank: its own.
            packed: its request, bound to the fewest nodes.
            spread: places on more nodes, and who must leave these.
            free: the same places if they are free; ``None``: they are not.
        """
        place = None
        if self._asked < MOST_WAITS:
            self._asked += 1
            place = self._costs.find_packed(packed)
        start = self._costs.start_spread(row, len(spread[0]) - packed.most_nodes, place)
        wait = math.inf if place is None else self._costs.wait_packed(row, place)
        if free is not None and start > 0:
            found = self._search.find(packed, rank)
            if found is not None and math.fsum(map(self._price, found[1])) < min(start, wait):
                return self._make_way(*found)
        if place is None or start <= wait:
            return free or self._make_way(*spread)
        self._keep(place)
        return None

    def _price(self, victim: int) -> float:
        """What it costs to preempt a running job, which may well start again on more nodes than it needs."""
        return float(self._price_s[victim]) + self._costs.start_spread(victim, 1, None)

    def _keep(self, place: PackedPlace) -> None:
        keep = JobPlacement([piece for piece in place.keep if piece.gpus], at_once=True)
        self._placing.free_capacity.hold(keep)
        self._keeps.append(keep)
        self._costs.kept[[piece.node for piece in place.keep]] = True
        self.next_s = min(self.next_s, place.wait_s)


def place_by_slowdowns(
    placing: PlacementPass,
    ranked: IntColumn,
    reclaimable: BoolColumn,
    holding: JobTable | None,
    *,
    price_s: FloatColumn,
    own_prices_s: FloatColumn,
    total_gpus: int,
    shared: Iterable[int],
) -> tuple[tuple[PreemptJob, ...], float]:
    """Places in order, and who is preempted for them or moves; and in how many seconds to decide anew, as somebody waits for
    fewer nodes: infinite where nobody does.

    ``shared``: rows of jobs that share a GPU; these do not move. By row, ``price_s``: what it costs all jobs to preempt a
    running one; ``own_prices_s``: what it costs that one, on each GPU.
    """
    costs = SpreadCosts(placing, ranked, total_gpus, own_prices_s)
    one_pass = SpreadPass(placing, ranked, reclaimable, holding, costs=costs, price_s=price_s)
    preempts = one_pass.run()
    movable = np.ones(len(placing.snapshot.jobs), dtype=np.bool_)
    movable[list(shared)] = False
    return preempts + move_to_fewer_nodes(placing, costs, movable, own_prices_s), one_pass.next_s


def move_to_fewer_nodes(
    placing: PlacementPass, costs: SpreadCosts, movable: BoolColumn, prices_s: FloatColumn
) -> tuple[PreemptJob, ...]:
    """Running jobs that are on more nodes than they need and had better move to fewer ones that nobody else takes.

    To move gains (slowdown - 1) times the work left, and costs ``prices_s``, by row.
    """
    snapshot = placing.snapshot
    spread, jobs = snapshot.spread, snapshot.jobs
    rows = np.flatnonzero(movable & (jobs.state == JobState.RUNNING) & jobs.preemptible & (spread.kind >= 0))
    gains = {row: gain for row in rows.tolist() if (gain := _gain_s(costs, placing, row) - prices_s[row]) > 0}
    found: list[PreemptJob] = []
    for row in sorted(gains, key=lambda one: (-gains[one], one)):
        if len(found) == _MOST_MOVES:
            break
        shape, held = placing.demand.shapes[int(placing.demand.code[row])], list_allocations(jobs, row)
        packed = shape._replace(most_nodes=costs.fewest_nodes(shape), fills_holes=False)
        claim = placing.free_capacity.now.find(packed)
        if claim is None:
            continue
        placing.verdict[row] = JobVerdict.PREEMPT
        placing.free_capacity.vacate(held)
        placing.claim(row, JobPlacement(claim, at_once=True))
        reason = f"it gets fewer nodes, on which it ends {gains[row]:.0f} s earlier"
        found.append(PreemptJob(int(jobs.job_id[row]), (), reason))
    return tuple(found)


def _gain_s(costs: SpreadCosts, placing: PlacementPass, row: int) -> float:
    slowdown = placing.snapshot.spread.expect(row, costs.extra_nodes(row))
    if slowdown <= 1.0 or placing.verdict[row] not in (JobVerdict.RUN, JobVerdict.PROTECTED):
        return 0.0
    work_s = costs.work_s(row)
    return (slowdown - 1.0) * work_s if work_s < math.inf else 0.0

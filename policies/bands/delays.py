"""Which jobs of a plan would delay a waiting job of a better band."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.backfill_reservations import STATES_HOLDING_RESOURCES, ReservationCalendar
from slurm_soda.policies.engine.demand import Demand, group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.engine.run_time_estimates import LIMIT, estimate_ends_s, estimate_runs_s
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState

MOST_KEPT = 32
"""For so many waiting jobs places are kept in one look; each costs a few searches. On nodes that would do for the others
nobody of a worse band starts who might stay until one of these could."""


class Delay(NamedTuple):
    """What a job would do to a better band."""

    row: int
    """Of the job that it would delay."""
    nodes: BoolColumn
    """Nodes on which it would, or might."""


def find_delaying(snapshot: ClusterSnapshot, plan: Plan, barred: BoolColumn, *, preempts: bool) -> dict[int, Delay]:
    """Rows of waiting jobs that would delay a better band.

    Besides those whom the plan starts: those that might in their place.

    Args:
        snapshot: with bands.
        plan: made on it.
        barred: rows that were kept from starting; they wait as others do.
        preempts: running jobs that can checkpoint make way for better bands.
    """
    look = _Look(snapshot, plan, barred, preempts=preempts)
    found = look.find_better_victims()
    for band in look.bands_that_wait():
        for on_gpus in (True, False):
            found |= look.find_delaying(band, on_gpus=on_gpus)
    return found


class _Look:
    """One plan, looked at."""

    def __init__(self, snapshot: ClusterSnapshot, plan: Plan, barred: BoolColumn, *, preempts: bool) -> None:
        self._snapshot, self._plan, self._barred = snapshot, plan, barred
        jobs = snapshot.jobs
        self._makes_way: BoolColumn = jobs.preemptible & (jobs.gpus > 0) & preempts
        verdict, waiting = plan.notes.verdict, jobs.state == JobState.PENDING
        self._pieces = _own_pieces(snapshot, plan)
        self._starts: BoolColumn = np.zeros(len(jobs), dtype=np.bool_)
        self._starts[list(self._pieces)] = True
        self._waits = waiting & ~self._starts & (verdict == JobVerdict.WAIT)
        self._rank = np.where(plan.notes.position >= 0, plan.notes.position, len(jobs))
        self._leaves = (verdict == JobVerdict.PREEMPT) | (jobs.state == JobState.COMPLETING)
        self._runs_s = estimate_runs_s(snapshot, LIMIT)
        self._ends_s = estimate_ends_s(snapshot, LIMIT)
        self._demand: Demand | None = None
        self._groups: NodeGroups | None = None

    def bands_that_wait(self) -> list[int]:
        """Bands with a job that waits on, while one of a worse band starts."""
        jobs = self._snapshot.jobs
        worst = int(jobs.band[self._starts].max(initial=-1))
        bands = np.unique(jobs.band[self._waits])
        found: list[int] = bands[bands < worst].tolist()
        return found

    def find_better_victims(self) -> dict[int, Delay]:
        """Jobs for which one of a better band is preempted, with that one."""
        jobs, found = self._snapshot.jobs, dict[int, Delay]()
        everywhere = np.ones(len(self._snapshot.nodes), dtype=np.bool_)
        for action in self._plan.preempts:
            if action.for_jobs and not action.parted_from:
                victim, rows = jobs.row(action.job_id), [jobs.row(one) for one in action.for_jobs]
                if (jobs.band[rows] > jobs.band[victim]).all():
                    found.update(dict.fromkeys(rows, Delay(victim, everywhere)))
        return found

    def find_delaying(self, band: int, *, on_gpus: bool) -> dict[int, Delay]:
        """Who of worse bands would delay one of those that wait in this band, with GPUs or without.

        Of those with GPUs, running jobs of worse bands make way that can; so what such jobs hold counts as theirs.
        """
        jobs = self._snapshot.jobs
        kind: BoolColumn = (jobs.gpus > 0) == on_gpus
        worse: BoolColumn = jobs.band > band
        makes_way = self._makes_way & worse & on_gpus
        suspects = self._by_rank(self._starts & worse & ~makes_way)
        waiting = self._by_rank(self._waits & kind & (jobs.band <= band))
        if not len(suspects) or not len(waiting) or jobs.band[waiting[-1]] != band:
            return {}
        kept = _KeptForBetter(self._snapshot, self._classes, self._shapes, self._held_until(makes_way), self._left_by())
        for row in self._by_rank(self._starts & ~worse).tolist():
            kept.start(self._pieces[row], float(self._runs_s[row]))
        kept.keep(waiting, self._runs_s)
        found: dict[int, Delay] = {}
        for row in suspects.tolist():
            other = kept.delayed_by(self._pieces[row], float(self._runs_s[row]))
            if other is None:
                kept.start(self._pieces[row], float(self._runs_s[row]))
            else:
                found[row] = Delay(other, kept.closed_to(row, float(self._runs_s[row])))
        for row in self._by_rank(self._waits & worse & ~makes_way & ~self._barred).tolist() if found else ():
            closed = kept.closed_to(row, float(self._runs_s[row]))
            if closed.any():
                found[row] = Delay(int(waiting[0]), closed)
        return found

    def _by_rank(self, flags: BoolColumn) -> IntColumn:
        rows = np.flatnonzero(flags)
        order: IntColumn = rows[np.lexsort((rows, self._rank[rows], self._snapshot.jobs.band[rows]))]
        return order

    @property
    def _classes(self) -> NodeGroups:
        self._groups = self._groups or NodeGroups(self._snapshot.nodes)
        return self._groups

    @property
    def _shapes(self) -> Demand:
        self._demand = self._demand or group_snapshot_requests(self._snapshot)
        return self._demand

    def _held_until(self, makes_way: BoolColumn) -> FloatColumn:
        """When each job's places are free, for those before whom some make way."""
        return np.where(makes_way, self._snapshot.now_s, self._ends_s)

    def _left_by(self) -> IntColumn:
        """Rows of those who leave now."""
        return np.flatnonzero(self._leaves)


class _KeptForBetter:
    """Places that are kept for the waiting jobs of some bands, in their order."""

    def __init__(
        self, snapshot: ClusterSnapshot, classes: NodeGroups, demand: Demand, ends_s: FloatColumn, leaving: IntColumn
    ) -> None:
        jobs, nodes = snapshot.jobs, snapshot.nodes
        self._now_s, self._classes, self._demand = snapshot.now_s, classes, demand
        self._free = FreeNodes(classes, nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        state = jobs.state.copy()
        for row in leaving.tolist():
            self._free.give([piece for piece in list_allocations(jobs, row) if nodes.usable[piece.node]])
        state[leaving] = JobState.BLOCKED
        present = replace(snapshot, jobs=jobs.with_columns(state=state))
        self._calendar = ReservationCalendar(present, self._free, ends_s)
        holds = np.isin(state, STATES_HOLDING_RESOURCES)
        self._next_end_s = float(ends_s[holds & (ends_s > snapshot.now_s)].min(initial=np.inf))
        self._kept_for: list[int] = []
        """Row for each reservation."""
        self._unplaced: dict[int, frozenset[int]] = {}
        """Node classes that would do for those for whom nothing is kept, by the row of one of each request."""
        self._closed: dict[tuple[int, tuple[int, ...], bool], BoolColumn] = {}

    def start(self, pieces: Sequence[NodeAllocation], run_s: float) -> None:
        """A job starts on these."""
        self._free.take(list(pieces))
        self._calendar.start(list(pieces), self._now_s + run_s)

    def keep(self, waiting: IntColumn, runs_s: FloatColumn) -> None:
        """Keep the earliest places for each of these in turn; those that the policy could have started go first."""
        hopeless: set[int] = set()
        seen: set[int] = set()
        codes = self._demand.code[waiting]
        fits = {code: self._free.find(self._demand.shapes[code]) is not None for code in np.unique(codes).tolist()}
        last = np.array([not fits[code] for code in codes.tolist()], dtype=np.bool_)
        in_turn = waiting[np.argsort(last, kind="stable")]
        for row in in_turn.tolist():
            code = int(self._demand.code[row])
            shape = self._demand.shapes[code]
            if code in hopeless:
                continue
            if len(self._kept_for) < MOST_KEPT:
                if self._calendar.reserve(shape, float(runs_s[row])) is None:
                    hopeless.add(code)
                else:
                    self._kept_for.append(row)
            elif code not in seen:
                seen.add(code)
                self._unplaced[row] = frozenset(self._classes.matching(shape.partition, shape.gpu_type))

    def delayed_by(self, pieces: Sequence[NodeAllocation], run_s: float) -> int | None:
        """Whom a job would delay that starts now on these; ``None``: nobody."""
        end_s = self._now_s + run_s
        for number, kept in enumerate(self._calendar.reservations):
            if kept.start_s < end_s and any(
                column[node] < amount
                for node, *amounts in pieces
                for column, amount in zip(kept.left, amounts, strict=True)
                if amount
            ):
                return self._kept_for[number]
        mine = {self._classes.of.item(piece.node) for piece in pieces}
        return self._unplaced_before(mine, end_s)

    def closed_to(self, row: int, run_s: float) -> BoolColumn:
        """Nodes on which a job would delay one of those, or might. One look at all nodes for each request and set of kept
        places that it outlives.
        """
        code, end_s = int(self._demand.code[row]), self._now_s + run_s
        shape = self._demand.shapes[code]
        key = code, self._calendar.find_delayed(shape, end_s), end_s > self._next_end_s
        if key not in self._closed:
            closed = np.zeros(len(self._classes.of), dtype=np.bool_)
            for number in key[1]:
                left = self._calendar.reservations[number].left
                for column, least in zip(left, shape.least, strict=True):
                    closed |= column < least
            for wanted in self._unplaced.values() if key[2] else ():
                closed |= np.isin(self._classes.of, list(wanted))
            self._closed[key] = closed & self._classes.mask(shape)
        return self._closed[key]

    def _unplaced_before(self, classes: set[int], end_s: float) -> int | None:
        if end_s <= self._next_end_s:
            return None
        return next((row for row, wanted in self._unplaced.items() if not wanted.isdisjoint(classes)), None)


def _own_pieces(snapshot: ClusterSnapshot, plan: Plan) -> Mapping[int, tuple[NodeAllocation, ...]]:
    """What each job of the plan's places takes that nobody else has: of shared GPUs the first one has them all."""
    jobs = snapshot.jobs
    if not isinstance(plan, SharingPlan) or not isinstance(snapshot, SharingSnapshot):
        return {jobs.row(one): pieces for one, pieces in plan.places.items()}
    gone = {action.job_id for action in plan.preempts}
    taken = {
        device
        for row, job_id in enumerate(jobs.job_id.tolist())
        if job_id not in gone
        for device in snapshot.devices.of(row).tolist()
    }
    found: dict[int, tuple[NodeAllocation, ...]] = {}
    for job_id, pieces in plan.places.items():
        fresh = [device for device in plan.devices.get(job_id, ()) if device not in taken]
        taken.update(fresh)
        on_node: dict[int, int] = defaultdict(int)
        for node in (np.searchsorted(snapshot.devices.first, fresh, side="right") - 1).tolist():
            on_node[node] += 1
        found[jobs.row(job_id)] = tuple(piece._replace(gpus=on_node[piece.node]) for piece in pieces)
    return found

"""Places of one decision of ``soda`` in the order of expected service, with preemption where it pays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.preemption import PreemptivePass, find_preemptible
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.soda.defragmentation import Defragmentation
from slurm_soda.policies.sharing.soda.expected_service import ServiceRule
from slurm_soda.policies.sharing.soda.fitting_waits import FittingWaits
from slurm_soda.policies.sharing.soda.preemption_price import (
    find_learned_prices_s,
    find_prices_s,
    order_by_price,
    sum_shorter,
    tell_prices,
)
from slurm_soda.policies.sharing.soda.slots import SharedSlots
from slurm_soda.policies.sharing.soda.spread_pass import find_demand, place_by_slowdowns
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable

SCORE_NAME = "rank_gpu_s"
_AGAIN_RATIO, _AGAIN_S = 0.1, 60.0
"""Ranks change with what jobs have run: the decision is made again once the youngest has run so much longer, and not sooner
than that, or than a preemption takes if that is less."""
_LEAST_AGAIN_S = 1.0
"""Never sooner than that: a job that is to start and does not, as Slurm is late or sodad only observes, stays as young as it
is."""

_MOST_REQUESTS = 8
"""Different requests of jobs that wait, from the first on, for which it is asked when they fit; only bounds the work."""


class OrderedPlaces:
    """Places of a decision in the order of expected service, with preemption where it pays; on any snapshot.

    Attributes:
        placing: the places so far.
        service: expected service of each job, by row.
        prices_s: seconds on each of its GPUs that it costs to preempt it.
        total_gpus: of the cluster.
    """

    def __init__(self, snapshot: ClusterSnapshot, rule: ServiceRule, *, moves: bool) -> None:
        """``moves``: running jobs may move so that a waiting one fits."""
        self._moves = moves
        self._snapshot, self._rule, self._change_s = snapshot, rule, rule.change_s
        self.prices_s = find_prices_s(snapshot, rule.change_s)
        self.service = rule.find(snapshot, self.prices_s)
        self._learned_s = find_learned_prices_s(snapshot, self.prices_s)
        self.placing = PlacementPass(snapshot, find_demand(snapshot))
        self._place_waits_s = math.inf
        self._reclaimable: BoolColumn = np.zeros(len(snapshot.jobs), dtype=np.bool_)
        self.total_gpus = max(int(snapshot.nodes.gpus[snapshot.nodes.usable].sum()), 1)
        rows = find_rankable_rows(snapshot)
        self._on_gpus = rows[snapshot.jobs.gpus[rows] > 0]
        self._on_cpus = rows[snapshot.jobs.gpus[rows] == 0]

    def place_gpu_jobs(self, slots: SharedSlots | None = None, *, hosts_too: bool = True) -> tuple[PreemptJob, ...]:
        """Start, and preempt where it pays; who is preempted. Those of ``slots`` leave together."""
        jobs, service = self._snapshot.jobs, self.service
        key = order_by_price(service, self.prices_s - self._change_s, jobs)
        self._ranked = rank_rows(jobs, self._on_gpus, key, jobs.submit_s)
        waiting = self.waiting()
        price_s = self._price_to_all_s(len(waiting))
        reclaimable, holding, freed = find_preemptible(self._snapshot, 0.0), jobs, service
        if slots is not None:
            price_s, holding = slots.price_with_guests(price_s), slots.holding
            hosted = _gpus_of(holding)
            reclaimable = slots.limit_to_hosts(reclaimable, hosts_too=hosts_too) & (hosted > 0)
            freed = service * hosted / np.maximum(jobs.gpus, 1)
        reclaimable &= self._gain_s(freed, waiting) > price_s
        self._reclaimable = reclaimable
        shared = () if slots is None else (*slots.guests, *(row for mine in slots.guests.values() for row in mine))
        if not self._snapshot.spread.decides:
            preempts = PreemptivePass(self.placing, self._ranked, reclaimable, holding).run()
            preempts += self._defragment(price_s, reclaimable, shared)
            return tell_prices(preempts, self._snapshot, self._learned_s)
        preempts, self._place_waits_s = place_by_slowdowns(
            self.placing,
            self._ranked,
            reclaimable,
            holding,
            price_s=price_s,
            own_prices_s=self.prices_s,
            total_gpus=self.total_gpus,
            shared=shared,
        )
        return tell_prices(preempts, self._snapshot, self._learned_s)

    def _price_to_all_s(self, waiting: int) -> FloatColumn:
        """By row, by how much all jobs together end later if it is preempted while so many wait."""
        jobs = self._snapshot.jobs
        found: FloatColumn = self.prices_s * (1.0 + jobs.gpus * waiting / self.total_gpus)
        return found

    def _gain_s(self, service: FloatColumn, waiting: IntColumn) -> FloatColumn:
        """By how much those that wait end earlier, of whom each goes before some jobs, if these are preempted."""
        return sum_shorter(service, self.service[waiting]) / self.total_gpus

    def _defragment(
        self, price_s: FloatColumn, reclaimable: BoolColumn, shared: Sequence[int]
    ) -> tuple[PreemptJob, ...]:
        """Who moves so that somebody who waits fits; none of those who share a GPU."""
        if not self._moves or not len(self.waiting()):
            return ()
        movable = find_preemptible(self._snapshot, 0.0)
        movable[list(shared)] = False
        return Defragmentation(
            self.placing,
            self._ranked,
            movable=movable,
            reclaimable=reclaimable,
            price_s=price_s,
            total_gpus=self.total_gpus,
        ).run()

    def place_cpu_jobs(self) -> None:
        """Jobs without GPUs get what is left, oldest first."""
        self._on_cpus = rank_rows(self._snapshot.jobs, self._on_cpus, self._snapshot.jobs.submit_s)
        self.placing.start_fitting(self._on_cpus, skip=True)

    def waiting(self) -> IntColumn:
        """GPU jobs without places, in order."""
        return self.placing.candidates(self._ranked)

    def plan(self, policy: str, preempts: tuple[PreemptJob, ...]) -> Plan:
        """The plan of all places so far."""
        return build_plan(
            self.placing,
            policy,
            np.concatenate((self._ranked, self._on_cpus)),
            skips=self._find_skipping(),
            score=self.service,
            score_name=SCORE_NAME,
            preempts=preempts,
            next_event_s=self._next_event_s(),
            price_s=self._learned_s,
        )

    def _find_skipping(self) -> IntColumn:
        """Who starts although others rank before that do not fit, and would make way for each of them; rows, ascending.

        As soon as it runs its service is larger than theirs, and to preempt it would pay; and so it will be when they are
        expected to fit.
        """
        jobs, waiting = self._snapshot.jobs, self.waiting()
        position = np.full(len(jobs), len(jobs))
        position[self._ranked] = np.arange(len(self._ranked))
        starts = (self.placing.verdict == JobVerdict.START) & (jobs.gpus > 0) & jobs.preemptible
        rows = np.flatnonzero(starts & (position > position[waiting].min(initial=len(jobs))))
        if not len(rows):
            return rows
        before = np.searchsorted(position[waiting], position[rows])
        may = before <= self._count_leading(waiting)
        if len(jobs.band):  # whoever it makes way for is no worse, and nobody better is passed
            may &= jobs.band[rows] == jobs.band[waiting[0]]
        rows, before = rows[may], before[may]
        may = self._make_way(rows, waiting, before, np.zeros(len(rows)))
        rows, before = rows[may], before[may]
        if not len(rows):
            return rows
        then_s = self._expect_fitting_s(rows, waiting[: before.max()])[before - 1]
        ended = np.isfinite(then_s) & ~self._is_learned(rows) & (jobs.remaining_s[rows] <= then_s)
        found: IntColumn = rows[ended | self._make_way(rows, waiting, before, then_s + self._again_s)]
        return found

    def _make_way(self, rows: IntColumn, waiting: IntColumn, before: IntColumn, after_s: FloatColumn) -> BoolColumn:
        """Whether it would pay to preempt each of these, once it has run for so long, for those that wait before it."""
        known = np.isfinite(after_s)
        largest = np.maximum.accumulate(self.service[waiting])[before - 1]
        service = self._rule.find_started(self._snapshot, rows, np.where(known, after_s, 0.0))
        pays = self._gain_s(service, waiting) > self._price_to_all_s(len(waiting))[rows]
        found: BoolColumn = known & pays & (service > largest)
        return found

    def _is_learned(self, rows: IntColumn) -> BoolColumn:
        """Whose run time is a distribution."""
        kind = self._snapshot.run_times.kind
        return kind[rows] >= 0 if len(kind) else np.zeros(len(rows), dtype=np.bool_)

    def _expect_fitting_s(self, rows: IntColumn, waiting: IntColumn) -> FloatColumn:
        """In how many seconds each that waits, and all before it, are expected to fit, if these rows and all who make way
        now leave; infinite once too many different ones are to be looked at.
        """
        makes_way = self._reclaimable.copy()
        makes_way[rows] = True
        waits, demand = FittingWaits(self.placing, makes_way), self.placing.demand
        found_s: dict[int, float] = {}
        for code in demand.code[waiting].tolist():
            if code not in found_s:
                found_s[code] = waits.expect_s(demand.shapes[code]) if len(found_s) < _MOST_REQUESTS else math.inf
        each_s = np.array([found_s[code] for code in demand.code[waiting].tolist()])
        latest_s: FloatColumn = np.maximum.accumulate(each_s)
        return latest_s

    def _count_leading(self, waiting: IntColumn) -> int:
        """How many of these, from the first on, may preempt others, each on the nodes that it wants."""
        may_preempt = self._snapshot.jobs.may_preempt
        barred = np.isin(waiting, list(self.placing.behind))
        barred |= ~may_preempt[waiting] if len(may_preempt) else False
        return int(np.argmax(barred)) if barred.any() else len(waiting)

    @property
    def _again_s(self) -> float:
        """The least time after which ranks have changed enough for another decision."""
        return max(min(self._change_s, _AGAIN_S), _LEAST_AGAIN_S) if self._change_s else _AGAIN_S

    def _next_event_s(self) -> float:
        jobs = self._snapshot.jobs
        running: BoolColumn = jobs.state == JobState.RUNNING
        running |= self.placing.verdict == JobVerdict.START
        running &= jobs.preemptible & (jobs.gpus > 0)
        packed_s = self._snapshot.now_s + max(self._place_waits_s, _AGAIN_S)
        if not len(self.waiting()) or not running.any():
            return packed_s
        return min(
            packed_s, self._snapshot.now_s + max(self._again_s, _AGAIN_RATIO * float(jobs.executed_s[running].min()))
        )


def _gpus_of(jobs: JobTable) -> IntColumn:
    """GPUs by row, counted over the nodes that it holds."""
    past = np.concatenate(([0], np.cumsum(jobs.alloc_gpus)))
    found: IntColumn = past[jobs.alloc_start[1:]] - past[jobs.alloc_start[:-1]]
    return found

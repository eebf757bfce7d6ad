"""OJPP and OJPAP as policies: jobs onto the fewest GPUs within bounds, and workers moved where they are disturbed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.ojpp.gang_placer import GangPlacer
from slurm_soda.policies.sharing.ojpp.packing import PackingRules
from slurm_soda.policies.sharing.ojpp.reasons import GangPlacementReasons
from slurm_soda.policies.sharing.ojpp.strategies import Strategy, find_strategy
from slurm_soda.policies.sharing.ojpp.worker_moves import InterferenceTrigger, PlannedMove, plan_moves
from slurm_soda.policies.sharing.plan import SharingPlan, make_sharing_plan, mark_unshared
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn

MAX_JOBS_PER_GPU = 3
SUBMIT, PAPER = "submit", "paper"
ORDERS = (SUBMIT, PAPER)


@dataclass(frozen=True, slots=True)
class OjppSettings:
    """How jobs are placed.

    Attributes:
        strategy: a line of Table 4; each heeds some of the bounds. Bounds of users hold with any.
        collision: tau; interference: theta; balance: theta', of Section 3.
        jobs_per_gpu: most jobs on one GPU.
        order: who is placed first: :data:`SUBMIT`, or all waiting jobs in the strategy's order (:data:`PAPER`), which may
            starve some.
        caution: slowdowns count as so many of their expected errors worse than known.
        opportunistic: peaks of memory may meet, as likely as ``collision`` allows (Section 3.2), where it is known how
            memory comes and goes; else a job counts with its peak.
    """

    strategy: str = "ojpp"
    collision: float = 0.1
    interference: float = 0.2
    balance: float = 0.1
    jobs_per_gpu: int = MAX_JOBS_PER_GPU
    order: str = SUBMIT
    caution: float = 0.0
    opportunistic: bool = False

    def gang_placer(self, snapshot: SharingSnapshot) -> GangPlacer:
        """The cluster as it is, with the bounds that count."""
        return GangPlacer(snapshot, self._strategy().rules, self.caution, opportunistic=self.opportunistic)

    def ranked(self, gang_placer: GangPlacer) -> IntColumn:
        """Jobs in the order in which they are placed; O(n log n)."""
        snapshot = gang_placer.snapshot
        rows = find_rankable_rows(snapshot)
        if self.order == SUBMIT:
            return rank_rows(snapshot.jobs, rows, snapshot.jobs.submit_s)
        position = np.empty(len(snapshot.jobs), dtype=np.int64)
        position[self._strategy().order(gang_placer.demands.jobs)] = np.arange(len(snapshot.jobs))
        return rank_rows(snapshot.jobs, rows, position, snapshot.jobs.submit_s)

    def _strategy(self) -> Strategy:
        return find_strategy(
            self.strategy, PackingRules(self.collision, self.interference, self.balance, most=self.jobs_per_gpu)
        )


@dataclass(frozen=True, slots=True)
class Ojpp(OjppSettings):
    """Jobs by submit time, each on the fewest GPUs within the bounds; jobs that find no room are passed.

    On a snapshot that does not know single GPUs it is ``fifo-skip``, and says so in its facts (``sharing_known`` is 0).
    """

    @property
    def name(self) -> str:
        return "ojpp"

    @property
    def starts_only(self) -> Literal[True]:
        """It preempts nobody."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As :meth:`.gang_placer.GangPlacer.place`, and O(jobs on GPUs x models) to begin with."""
        if not isinstance(snapshot, SharingSnapshot):
            return mark_unshared(Fifo(skip=True).decide(snapshot), self.name)
        gang_placer = self.gang_placer(snapshot)
        ranked = self.ranked(gang_placer)
        gang_placer.place(ranked)
        return build_placement_plan(gang_placer, self.name, ranked, (), math.inf)


@dataclass(frozen=True, slots=True)
class Ojpap(OjppSettings):
    """OJPP that moves workers off devices whose interference, smoothed over time, exceeds the bound (Algorithm 4).

    Attributes:
        weight: a of Equation 18, what the past counts.
        interval_s: how often interference is observed.
        move_s: what moving a job costs each of its GPUs.
        budget_gpu_s: most allowed cost of all moves of one decision (Equation 19).
        min_run_s: a job is not moved before it has run so long since its last start.
    """

    weight: float = 0.8
    interval_s: float = 60.0
    move_s: float = 60.0
    budget_gpu_s: float = 3600.0
    min_run_s: float = 600.0

    @property
    def name(self) -> str:
        return "ojpap"

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """First the moves, then the places of waiting jobs; as :func:`.plan_moves` and :class:`Ojpp`."""
        if not isinstance(snapshot, SharingSnapshot):
            return mark_unshared(Fifo(skip=True).decide(snapshot), self.name)
        gang_placer = self.gang_placer(snapshot)
        trigger = InterferenceTrigger(self.weight, self.interval_s)
        moved = plan_moves(gang_placer, trigger, self.move_s, self.budget_gpu_s, self.min_run_s)
        ranked = self.ranked(gang_placer)
        gang_placer.place(ranked)
        # Slowdowns may have been seen by the next observation.
        mixed = any(len(rows) > 1 for rows in gang_placer.packing.residents)
        return build_placement_plan(
            gang_placer, self.name, ranked, moved, snapshot.now_s + self.interval_s if mixed else math.inf
        )


def build_placement_plan(
    gang_placer: GangPlacer, name: str, ranked: IntColumn, moved: tuple[PlannedMove, ...], next_event_s: float
) -> SharingPlan:
    """The plan of a finished decision."""
    jobs, now_s = gang_placer.snapshot.jobs, gang_placer.snapshot.now_s
    if not gang_placer.snapshot.mechanism.starts_together and gang_placer.devices and gang_placer.refused:
        next_event_s = now_s  # those who wait may join those who start now as soon as they run
    plan = build_plan(
        gang_placer.placing,
        name,
        ranked,
        score=jobs.submit_s,
        score_name="submit_s",
        preempts=tuple(one.preempt for one in moved),
        next_event_s=next_event_s,
    )
    made = make_sharing_plan(plan, jobs.job_id, gang_placer.devices, {"gpus_active": float(gang_placer.packing.used)})
    return replace(made, decisions=GangPlacementReasons(gang_placer, moved).reports())

"""OJPP and OJPAP as policies: jobs onto the fewest GPUs within bounds, and workers moved where they are disturbed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from slurm_soda.policies.assembly import assemble, rank, rankable
from slurm_soda.policies.fifo import Fifo
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.ojpp.grounds import LodgingGrounds
from slurm_soda.policies.sharing.ojpp.lodging import Lodging
from slurm_soda.policies.sharing.ojpp.moving import Moved, Trigger, move
from slurm_soda.policies.sharing.ojpp.packing import Rules
from slurm_soda.policies.sharing.ojpp.strategies import Strategy, strategy
from slurm_soda.policies.sharing.plan import SharingPlan, shared, unshared
from slurm_soda.policies.sharing.view import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn

MOST = 3
SUBMIT, PAPER = "submit", "paper"
ORDERS = (SUBMIT, PAPER)


@dataclass(frozen=True, slots=True)
class Placing:
    """How jobs are placed.

    Attributes:
        strategy: a line of Table 4; each heeds some of the bounds. Bounds of users hold with any.
        collision: tau; interference: theta; balance: theta', of Section 3.
        most: jobs on one GPU.
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
    most: int = MOST
    order: str = SUBMIT
    caution: float = 0.0
    opportunistic: bool = False

    @property
    def jobs_per_gpu(self) -> int:
        """As set."""
        return self.most

    def lodging(self, snapshot: SharingSnapshot) -> Lodging:
        """The cluster as it is, with the bounds that count."""
        return Lodging(snapshot, self._strategy().rules, self.caution, opportunistic=self.opportunistic)

    def ranked(self, lodging: Lodging) -> IntColumn:
        """Jobs in the order in which they are placed; O(n log n)."""
        snapshot = lodging.snapshot
        rows = rankable(snapshot)
        if self.order == SUBMIT:
            return rank(rows, snapshot.jobs.submit_s)
        position = np.empty(len(snapshot.jobs), dtype=np.int64)
        position[self._strategy().order(lodging.demands.jobs)] = np.arange(len(snapshot.jobs))
        return rank(rows, position, snapshot.jobs.submit_s)

    def _strategy(self) -> Strategy:
        return strategy(self.strategy, Rules(self.collision, self.interference, self.balance, most=self.most))


@dataclass(frozen=True, slots=True)
class Ojpp(Placing):
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
        """As :meth:`.lodging.Lodging.place`, and O(jobs on GPUs x models) to begin with."""
        if not isinstance(snapshot, SharingSnapshot):
            return unshared(Fifo(skip=True).decide(snapshot), self.name)
        lodging = self.lodging(snapshot)
        ranked = self.ranked(lodging)
        lodging.place(ranked)
        return plan_of(lodging, self.name, ranked, (), math.inf)


@dataclass(frozen=True, slots=True)
class Ojpap(Placing):
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
        """First the moves, then the places of waiting jobs; as :func:`.moving.move` and :class:`Ojpp`."""
        if not isinstance(snapshot, SharingSnapshot):
            return unshared(Fifo(skip=True).decide(snapshot), self.name)
        lodging = self.lodging(snapshot)
        trigger = Trigger(self.weight, self.interval_s)
        moved = move(lodging, trigger, self.move_s, self.budget_gpu_s, self.min_run_s)
        ranked = self.ranked(lodging)
        lodging.place(ranked)
        # Slowdowns may have been seen by the next observation.
        mixed = any(len(rows) > 1 for rows in lodging.packing.residents)
        return plan_of(lodging, self.name, ranked, moved, snapshot.now_s + self.interval_s if mixed else math.inf)


def plan_of(
    lodging: Lodging, name: str, ranked: IntColumn, moved: tuple[Moved, ...], next_event_s: float
) -> SharingPlan:
    """The plan of a finished decision."""
    jobs = lodging.snapshot.jobs
    plan = assemble(
        lodging.walk, name, ranked, score=jobs.submit_s, score_name="submit_s",
        preempts=tuple(one.preempt for one in moved), next_event_s=next_event_s,
    )  # fmt: skip
    made = shared(plan, jobs.job_id, lodging.devices, {"gpus_active": float(lodging.packing.used)})
    return replace(made, decisions=LodgingGrounds(lodging, moved).asked())

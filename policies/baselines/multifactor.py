"""A weighted sum of age, fair share and size, with EASY backfill: a Slurm site as most are configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurm_soda.policies.baselines.backfill import DEFAULT_DEPTH, start_and_backfill
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.run_time_estimates import LIMIT
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn

MAX_AGE_S = 7 * 86_400.0
"""Slurm's default of PriorityMaxAge."""
CALC_PERIOD_S = 300.0
"""Slurm's default of PriorityCalcPeriod: how often priorities are computed anew."""


@dataclass(frozen=True, slots=True)
class Multifactor:
    """Largest priority first, ties by submit time, then job id; behind a blocked job as by :class:`.backfill.Backfill`.

    Slurm's own weights default to 0, which is FIFO. These are those of the example in Slurm's documentation.

    Attributes:
        weight_age: PriorityWeightAge.
        weight_fairshare: PriorityWeightFairshare.
        weight_size: PriorityWeightJobSize.
        favor_small: PriorityFavorSmall: the size factor is 1 less its usual value.
        max_age_s: waiting longer does not raise the age factor any more (PriorityMaxAge).
        estimate: see :class:`.backfill.Backfill`.
        depth: see :class:`.backfill.Backfill`.
        reservations: see :class:`.backfill.Backfill`.
    """

    weight_age: float = 1000.0
    weight_fairshare: float = 10_000.0
    weight_size: float = 1000.0
    favor_small: bool = False
    max_age_s: float = MAX_AGE_S
    estimate: str = LIMIT
    depth: int = DEFAULT_DEPTH
    reservations: int = 1

    @property
    def name(self) -> str:
        return "multifactor"

    @property
    def starts_only(self) -> Literal[True]:
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As :meth:`.backfill.Backfill.decide`, after O(n) for priorities."""
        jobs = snapshot.jobs
        priority = self.priorities(snapshot)
        ranked = rank_rows(jobs, find_rankable_rows(snapshot), -priority, jobs.submit_s)
        placing = PlacementPass(snapshot)
        reserved_in_s = start_and_backfill(
            placing, ranked, estimate=self.estimate, depth=self.depth, reservations=self.reservations
        )
        moves = bool(self.weight_age or self.weight_fairshare) and bool((placing.verdict == JobVerdict.WAIT).any())
        return build_plan(
            placing,
            self.name,
            ranked,
            score=priority,
            score_name="priority",
            reserved_in_s=reserved_in_s,
            next_event_s=snapshot.now_s + CALC_PERIOD_S if moves else float("inf"),
        )

    def priorities(self, snapshot: ClusterSnapshot) -> FloatColumn:
        """weight_age x age + weight_fairshare x fair share + weight_size x size, one value a row; all factors in [0, 1].

        age = time waited / max_age_s, at most 1; fair share: see :func:`compute_fair_shares`; size = the mean of the job's
        part of all nodes and its part of all CPUs.
        """
        jobs, nodes = snapshot.jobs, snapshot.nodes
        age = np.minimum(jobs.waited_s / self.max_age_s, 1.0)
        size = 0.5 * (_part(jobs.nodes, len(nodes)) + _part(jobs.cpus, int(nodes.cpus.sum())))
        if self.favor_small:
            size = 1.0 - size
        priority: FloatColumn = (
            self.weight_age * age + self.weight_fairshare * compute_fair_shares(snapshot) + self.weight_size * size
        )
        return priority


def compute_fair_shares(snapshot: ClusterSnapshot) -> FloatColumn:
    """2^(-usage / shares) of each job's user, one value a row (Slurm's classic fair-share formula).

    usage is the user's part of the service that all present jobs have had, in run time x the largest part of the
    cluster's GPUs or CPUs that the job holds (PriorityFlags=MAX_TRES with both billed by their scarcity); shares is one
    part for each user with a job here. 1 for all where nobody has had any service. Service of jobs that have left is not
    in a snapshot: Slurm would remember it for some weeks.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    if not len(jobs):
        return np.zeros(0)
    billed = np.maximum(_part(jobs.gpus, int(nodes.gpus.sum())), _part(jobs.cpus, int(nodes.cpus.sum())))
    usage = np.bincount(jobs.user, weights=jobs.executed_s * billed)
    total = float(usage.sum())
    if total <= 0.0:
        return np.ones(len(jobs))
    users = len(np.unique(jobs.user))
    factors: FloatColumn = np.exp2(-usage / total * users)
    return factors[jobs.user]


def _part(amount: IntColumn, total: int) -> FloatColumn:
    return np.minimum(amount / max(total, 1), 1.0)

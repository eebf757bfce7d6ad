"""Slurm's own priority, whatever the site made of it, with EASY backfill: stock Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurm_soda.policies.bands.bands import find_tiers
from slurm_soda.policies.baselines.backfill import DEFAULT_DEPTH, start_and_backfill
from slurm_soda.policies.engine.lift_bounds import find_natural_priorities, find_tie_places
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.run_time_estimates import LIMIT
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.snapshot import ClusterSnapshot

CALC_PERIOD_S = 300.0
"""Slurm's default of PriorityCalcPeriod: how often priorities are computed anew."""


@dataclass(frozen=True, slots=True)
class Multifactor:
    """Highest PriorityTier first, then the largest priority without our SiteFactor, ties as in Slurm.

    Behind a blocked job it goes on as :class:`.backfill.Backfill` does.

    Attributes:
        estimate: see :class:`.backfill.Backfill`.
        depth: see :class:`.backfill.Backfill`.
        reservations: see :class:`.backfill.Backfill`.
    """

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
        """As :meth:`.backfill.Backfill.decide`."""
        jobs = snapshot.jobs
        priority = find_natural_priorities(jobs)
        ranked = rank_rows(jobs, find_rankable_rows(snapshot), -find_tiers(snapshot), -priority, find_tie_places(jobs))
        placing = PlacementPass(snapshot)
        reserved_in_s = start_and_backfill(
            placing, ranked, estimate=self.estimate, depth=self.depth, reservations=self.reservations
        )
        waits = bool((placing.verdict == JobVerdict.WAIT).any())
        return build_plan(
            placing,
            self.name,
            ranked,
            score=priority.astype(np.float64),
            score_name="priority",
            reserved_in_s=reserved_in_s,
            next_event_s=snapshot.now_s + CALC_PERIOD_S if waits else float("inf"),
        )

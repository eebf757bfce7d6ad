"""One decision: stages that each make a plan more complete, in an order that is written down in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slurm_soda.policies.cpu_fit.stage import CpuFit
from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.policy import Policy, min_run_s_of
from slurm_soda.policies.pools.stages.policy_in_pools import PolicyInPools
from slurm_soda.policies.pools.stages.pool_order import OrderWaitingJobs
from slurm_soda.policies.pools.stages.requeued_borrowers import RequeuedBorrowersFirst
from slurm_soda.policies.scope.keep_scope import KeepScope
from slurm_soda.policies.services.place_services import PlaceServices
from slurm_soda.policies.sharing.engine.join_running_jobs import JoinRunningJobs
from slurm_soda.policies.sharing.engine.manual_joins import JoinByHand
from slurm_soda.policies.sharing.parting.part_pairs import PartPairs
from slurm_soda.policies.snapshot import ClusterSnapshot


class Stage(Protocol):
    """One step of the decision: a pure function of the snapshot and of the plan so far."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with what this stage adds or changes; the same input gives the same plan, to the bit."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in their order."""

    stages: tuple[Stage, ...]

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """The plan for this instant."""
        plan = empty_plan()
        for stage in self.stages:
            plan = stage.apply(snapshot, plan)
        return plan


def pipeline_of(policy: Policy) -> Pipeline:
    """The whole decision, as sodad, ``sodactl`` and the simulator make it; what a site has no use for does nothing."""
    return Pipeline(
        (
            PolicyInPools(policy),
            PartPairs(),
            JoinByHand(),
            RequeuedBorrowersFirst(),
            OrderWaitingJobs(),
            CpuFit(),
            JoinRunningJobs(),
            PlaceServices(min_run_s_of(policy)),
            KeepScope(),
        )
    )


def empty_plan() -> Plan:
    """Nothing is wanted of nobody."""
    none = np.zeros(0, dtype=np.int64)
    notes = JobNotes(none, none.astype(np.int8), none, none.astype(np.float64), none)
    return Plan(policy="", order=none, starts=none, notes=notes)

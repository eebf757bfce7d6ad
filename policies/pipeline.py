"""One decision: stages that each make a plan more complete, in an order that is written down in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.policy import Policy
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


@dataclass(frozen=True, slots=True)
class PolicyAlone:
    """The first stage where jobs are in no pools: the policy's own plan."""

    policy: Policy

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """What the policy decides, whatever was planned before."""
        return self.policy.decide(snapshot)


def empty_plan() -> Plan:
    """Nothing is wanted of nobody."""
    none = np.zeros(0, dtype=np.int64)
    notes = JobNotes(none, none.astype(np.int8), none, none.astype(np.float64), none)
    return Plan(policy="", order=none, starts=none, notes=notes)

"""What a policy says of one job while a simulation runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurm_soda.policies.plan import JobNote, Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.policies.sharing.co_runners.report import CoRunnersReport
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharesWherePossiblePolicy, SharingPolicy
from slurm_soda.policies.snapshot import ClusterSnapshot

MOST_DECISIONS_KEPT = 1000
"""The newest things said that are kept."""


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """What a plan said of the job.

    Attributes:
        now_s: when.
        expected_s: run time left, as the policy was told; NaN: nobody knew.
        note: the plan's line on it.
        decision: the arithmetic behind sharing or waiting; None: sharing was not looked at.
    """

    now_s: float
    expected_s: float
    note: JobNote
    decision: SharingDecision | CoRunnersReport | None


class DecisionRecorder:
    """A policy, and what its plans said of one job, wherever that changed; it needs whole snapshots."""

    def __init__(self, policy: Policy, job_id: int) -> None:
        self.name, self._policy, self._job_id = policy.name, policy, job_id
        self.said: list[RecordedDecision] = []

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides."""
        plan = self._policy.decide(snapshot)
        at = int(np.searchsorted(snapshot.jobs.job_id, self._job_id))
        if at < len(snapshot.jobs) and int(snapshot.jobs.job_id[at]) == self._job_id:
            self._hear(plan, snapshot.now_s, float(snapshot.jobs.remaining_s[at]))
        return plan

    def _hear(self, plan: Plan, now_s: float, expected_s: float) -> None:
        note = plan.notes.of(self._job_id)
        decision = plan.decisions.get(self._job_id) if isinstance(plan, SharingPlan) else None
        last = self.said[-1] if self.said else None
        same = last is not None and last.note.verdict == note.verdict
        if last is not None and same and _changed_part(last.decision) == _changed_part(decision):
            return
        self.said.append(RecordedDecision(now_s, expected_s, note, decision))
        del self.said[:-MOST_DECISIONS_KEPT]


class SharingDecisionRecorder(DecisionRecorder):
    """The same of a policy that shares."""

    def __init__(self, policy: SharingPolicy, job_id: int) -> None:
        super().__init__(policy, job_id)
        self.jobs_per_gpu = policy.jobs_per_gpu
        if isinstance(policy, SharesWherePossiblePolicy):
            self.shares_where_possible: Literal[True] = True


def record_decisions_on(policy: Policy, job_id: int) -> DecisionRecorder:
    """The policy, listened to."""
    return (
        SharingDecisionRecorder(policy, job_id)
        if isinstance(policy, SharingPolicy)
        else DecisionRecorder(policy, job_id)
    )


def _changed_part(decision: SharingDecision | CoRunnersReport | None) -> tuple[bool, int] | None:
    """What of a decision is worth another line."""
    return None if decision is None else (decision.share, len(decision.alone_s))

"""Jobs that were preempted start again a little later: Slurm turns away whoever comes back to a node at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.snapshot import CpuJobsLastPolicy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.policies.waiting.overdue import ROUNDING_S


class RequeuedJobsWait:
    """A policy whose preempted jobs may start ``requeue_s`` after they left at the earliest; others may have their places
    meanwhile.
    """

    def __init__(self, policy: Policy, requeue_s: float) -> None:
        self._policy, self._requeue_s, self.name = policy, requeue_s, policy.name
        if isinstance(policy, CpuJobsLastPolicy):
            self.cpu_jobs_last: Literal[True] = True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides on the others, and again as soon as one of them may start."""
        jobs = snapshot.jobs
        left_s = np.where(
            (jobs.state == JobState.PENDING) & (jobs.preemptions > 0), self._requeue_s - jobs.waited_s, 0.0
        )
        requeued = left_s > ROUNDING_S
        if requeued.any():
            may_start = ~requeued & jobs.may_start if len(jobs.may_start) else ~requeued
            snapshot = replace(snapshot, jobs=jobs.with_columns(may_start=may_start))
        plan = self._policy.decide(snapshot)
        leaving = {preempt.job_id for preempt in plan.preempts}
        places = {job_id: pieces for job_id, pieces in plan.places.items() if job_id not in leaving}
        again_s = snapshot.now_s + float(left_s[requeued].min(initial=np.inf))
        return replace(plan, places=places, next_event_s=min(plan.next_event_s, again_s))

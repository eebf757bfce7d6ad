"""Run times that a policy must predict: learned from past jobs, and from those of the run itself as they end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.run_times.batch_prediction import BatchRunTimePredictor
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.standing_predictions import StandingPredictions
from slurm_soda.policies.session.ranking import RankingPolicy, StartsOnlyPolicy
from slurm_soda.policies.sharing.snapshot import CpuJobsLastPolicy, SharingPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState
from slurm_soda.simulator.workload import Workload

_LEAST_STEP_S = 1.0


class PolicyWithPredictions:
    """A policy that is told predictions in place of the run times of a workload's jobs; one object serves one run.

    The engine's snapshots say what is truly left. From this follows how long a job has worked, and that is all that the
    prediction is given of it, unless it tells its progress. A job that is gone from the snapshot has ended, and its run time
    is learned.
    """

    def __init__(self, policy: Policy, workload: Workload, past: Workload | None, tells_after_s: float) -> None:
        """Learn from ``past`` jobs first, in the order in which they would have ended had they started at once.

        Args:
            policy: whoever is told.
            workload: its jobs; ``expected_s`` must be the truth.
            past: jobs that ended before; None: none.
            tells_after_s: a job that has worked for so long is known to tell truly what is left of it; infinite: none does.
        """
        self._policy, self.name = policy, policy.name
        if isinstance(policy, CpuJobsLastPolicy):
            self.cpu_jobs_last: Literal[True] = True
        self._forecast, self._standing = BatchRunTimePredictor(), StandingPredictions()
        if past is not None:
            traits, run_s = traits_of_workload(past), past.run_s.tolist()
            for row in np.argsort(past.submit_s + past.run_s, kind="stable").tolist():
                self._forecast.ended(traits[row], run_s[row])
        self._traits = traits_of_workload(workload)
        self._run_s, self._limit_s = workload.run_s, workload.time_limit_s
        self._kind = np.full(len(workload), -1, dtype=np.int64)
        self._most_s = np.zeros(len(workload))
        """The most that each job had worked before it lost some of it."""
        self._present: IntColumn = np.zeros(0, dtype=np.int64)
        self._tells_after_s = tells_after_s

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides, with predictions in the place of ``remaining_s``."""
        rows = snapshot.jobs.job_id - 1
        for row in self._present[~np.isin(self._present, rows, assume_unique=True)].tolist():
            if math.isfinite(run_s := float(self._run_s[row])):  # of an instance of a service nothing is learned
                self._forecast.ended(self._traits[row], run_s)
        self._present = rows
        left_s = snapshot.jobs.remaining_s
        whole_s = self._run_s[rows]
        attained_s = np.maximum(np.subtract(whole_s, left_s, out=np.zeros(len(rows)), where=np.isfinite(whole_s)), 0.0)
        # A job that lost work needed it nevertheless: it runs for longer than that, and does it again.
        self._most_s[rows] = most_s = np.maximum(self._most_s[rows], attained_s)
        told_s = self._remaining_s(rows, most_s) + (most_s - attained_s)
        run_times = self._forecast.expected(self._kind[rows], most_s)
        if (tells := attained_s >= self._tells_after_s).any():
            told_s = np.where(tells, left_s, told_s)
            run_times = replace(run_times, kind=np.where(tells, -1, run_times.kind))
        predicted = replace(snapshot, jobs=snapshot.jobs.with_columns(remaining_s=told_s), run_times=run_times)
        if isinstance(predicted, SharingSnapshot):  # iterations would reveal the time left
            with np.errstate(divide="ignore", invalid="ignore"):
                iterations = predicted.sharing.iterations * (told_s / left_s)
            predicted = replace(predicted, sharing=replace(predicted.sharing, iterations=iterations))
        plan = self._policy.decide(predicted)
        if isinstance(self, StartsOnlyPolicy):
            return plan
        return self._decide_again_when_known(predicted, decide_again_in_time(predicted, plan), attained_s)

    def _decide_again_when_known(self, snapshot: ClusterSnapshot, plan: Plan, attained_s: FloatColumn) -> Plan:
        """The plan, to be made anew when a running job tells what is left of it while GPU jobs wait."""
        runs, waits = _split_gpu_jobs(snapshot, plan)
        if not waits.any():
            return plan
        tells_in_s = self._tells_after_s - attained_s[runs]
        known_s = snapshot.now_s + np.maximum(tells_in_s[tells_in_s > 0], _LEAST_STEP_S)
        return replace(plan, next_event_s=min(plan.next_event_s, float(known_s.min(initial=math.inf))))

    def _remaining_s(self, rows: IntColumn, attained_s: FloatColumn) -> FloatColumn:
        """Never more than time limits leave."""
        for row in rows[self._kind[rows] < 0].tolist():
            self._kind[row] = self._forecast.number(self._traits[row])
        self._forecast.observe(rows, self._kind[rows], attained_s)
        predicted_s = self._forecast.remaining(self._kind[rows], attained_s)
        told_s = self._standing.remaining(rows, attained_s, predicted_s)
        capped: FloatColumn = np.minimum(told_s, np.maximum(self._limit_s[rows] - attained_s, 1.0))
        return capped


class StartsOnlyPolicyWithPredictions(PolicyWithPredictions):
    """The same of a policy that only starts jobs: it need not be asked while none fits."""

    starts_only: Literal[True] = True


class PolicyWithEstimates:
    """A policy that goes by run times and preempts, where those that it is told may be wrong."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.name = policy, policy.name
        if isinstance(policy, CpuJobsLastPolicy):
            self.cpu_jobs_last: Literal[True] = True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides, and again when a job has outlived what was said of it."""
        return decide_again_in_time(snapshot, self._policy.decide(snapshot))


def decide_again_in_time(snapshot: ClusterSnapshot, plan: Plan) -> Plan:
    """The plan, which is to be made anew when a running job outlives what is said of it, while jobs wait that may take its
    place: until it ends, which may be in a year, nothing else may happen.
    """
    runs, waits = _split_gpu_jobs(snapshot, plan)
    if not waits.any():
        return plan
    # One that is slowed down outlives it later: then the policy is asked each time that what is left has halved.
    left_s = np.maximum(snapshot.jobs.remaining_s[runs], _LEAST_STEP_S)
    return replace(
        plan, next_event_s=min(plan.next_event_s, snapshot.now_s + float(np.fmin.reduce(left_s, initial=np.inf)))
    )


def _split_gpu_jobs(snapshot: ClusterSnapshot, plan: Plan) -> tuple[BoolColumn, BoolColumn]:
    """By row, the GPU jobs that run once a plan is carried out, and those that do not."""
    jobs = snapshot.jobs
    leaving = np.isin(jobs.job_id, [preempt.job_id for preempt in plan.preempts])
    runs = ((jobs.state == JobState.RUNNING) & ~leaving) | np.isin(jobs.job_id, plan.starts)
    on_gpus = jobs.gpus > 0
    return on_gpus & runs, on_gpus & ~runs


def with_estimated_run_times(policy: Policy, workload: Workload) -> Policy:
    """The policy; see :class:`PolicyWithEstimates` where it is told anything but the truth."""
    if np.array_equal(workload.expected_s, workload.run_s):
        return policy
    ranking = policy.ranking() if isinstance(policy, RankingPolicy) else None
    by_run_times = ranking is not None and ranking.rules.true_run_times
    shares = isinstance(policy, SharingPolicy) and not isinstance(policy, StartsOnlyPolicy)
    return PolicyWithEstimates(policy) if by_run_times or shares else policy


def with_predicted_run_times(
    policy: Policy, workload: Workload, past: Workload | None, tells_after_s: float = math.inf
) -> Policy:
    """The policy, told predictions; see :class:`PolicyWithPredictions`."""
    ranking = policy.ranking() if isinstance(policy, RankingPolicy) else None
    starts_only = isinstance(policy, StartsOnlyPolicy) or (ranking is not None and not ranking.rules.preemptive)
    return (StartsOnlyPolicyWithPredictions if starts_only else PolicyWithPredictions)(
        policy, workload, past, tells_after_s
    )


def traits_of_workload(workload: Workload) -> Sequence[SubmissionTraits]:
    """What a trace says of each job when it is submitted; the numbers that it gives jobs are no names."""
    users, partitions, models = (*workload.users, ""), (*workload.partitions, ""), (*workload.models, "")
    columns = (workload.user, workload.gpus, workload.partition, workload.model, workload.time_limit_s)
    return [
        SubmissionTraits(users[user], gpus, partitions[partition], model=models[model], limit_s=limit_s)
        for user, gpus, partition, model, limit_s in zip(*(column.tolist() for column in columns), strict=True)
    ]

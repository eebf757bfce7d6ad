"""Run times that a policy must predict: learned from past jobs, and from those of the run itself as they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.run_times.batch_prediction import BatchRunTimePredictor
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.session.ranking import RankingPolicy, StartsOnlyPolicy
from slurm_soda.policies.sharing.snapshot import CpuJobsLastPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn
from slurm_soda.simulator.workload import Workload


class PolicyWithPredictions:
    """A policy that is told predictions in place of the run times of a workload's jobs; one object serves one run.

    The engine's snapshots say what is truly left. From this follows how long a job has worked, and that is all that the
    prediction is given of it. A job that is gone from the snapshot has ended, and its run time is learned.
    """

    def __init__(self, policy: Policy, workload: Workload, past: Workload | None) -> None:
        """``past`` jobs are learned first, in the order in which they would have ended had they started at once.

        ``workload.expected_s`` must be the truth.
        """
        self._policy, self.name = policy, policy.name
        if isinstance(policy, CpuJobsLastPolicy):
            self.cpu_jobs_last: Literal[True] = True
        self._forecast = BatchRunTimePredictor()
        if past is not None:
            traits, run_s = traits_of_workload(past), past.run_s.tolist()
            for row in np.argsort(past.submit_s + past.run_s, kind="stable").tolist():
                self._forecast.ended(traits[row], run_s[row])
        self._traits = traits_of_workload(workload)
        self._run_s, self._limit_s = workload.run_s, workload.time_limit_s
        self._kind = np.full(len(workload), -1, dtype=np.int64)
        self._present: IntColumn = np.zeros(0, dtype=np.int64)

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides, with predictions in the place of ``remaining_s``."""
        rows = snapshot.jobs.job_id - 1
        for row in self._present[~np.isin(self._present, rows, assume_unique=True)].tolist():
            self._forecast.ended(self._traits[row], float(self._run_s[row]))
        self._present = rows
        left_s = snapshot.jobs.remaining_s
        attained_s = np.maximum(self._run_s[rows] - left_s, 0.0)
        told_s = self._remaining_s(rows, attained_s)
        run_times = self._forecast.expected(self._kind[rows], attained_s)
        predicted = replace(snapshot, jobs=snapshot.jobs.with_columns(remaining_s=told_s), run_times=run_times)
        if isinstance(predicted, SharingSnapshot):  # iterations would reveal the time left
            with np.errstate(divide="ignore", invalid="ignore"):
                iterations = predicted.sharing.iterations * (told_s / left_s)
            predicted = replace(predicted, sharing=replace(predicted.sharing, iterations=iterations))
        return self._policy.decide(predicted)

    def _remaining_s(self, rows: IntColumn, attained_s: FloatColumn) -> FloatColumn:
        """Never more than time limits leave."""
        for row in rows[self._kind[rows] < 0].tolist():
            self._kind[row] = self._forecast.number(self._traits[row])
        told_s, _ = self._forecast.remaining(self._kind[rows], attained_s)
        capped: FloatColumn = np.fmin(told_s, np.maximum(self._limit_s[rows] - attained_s, 1.0))
        return capped


class StartsOnlyPolicyWithPredictions(PolicyWithPredictions):
    """The same of a policy that only starts jobs: it need not be asked while none fits."""

    starts_only: Literal[True] = True


def with_predicted_run_times(policy: Policy, workload: Workload, past: Workload | None) -> Policy:
    """The policy, told predictions; see :class:`PolicyWithPredictions`."""
    ranking = policy.ranking() if isinstance(policy, RankingPolicy) else None
    starts_only = isinstance(policy, StartsOnlyPolicy) or (ranking is not None and not ranking.rules.preemptive)
    return (StartsOnlyPolicyWithPredictions if starts_only else PolicyWithPredictions)(policy, workload, past)


def traits_of_workload(workload: Workload) -> Sequence[SubmissionTraits]:
    """What a trace says of each job when it is submitted; the numbers that it gives jobs are no names."""
    users, partitions, models = (*workload.users, ""), (*workload.partitions, ""), (*workload.models, "")
    columns = (workload.user, workload.gpus, workload.partition, workload.model)
    return [
        SubmissionTraits(users[user], gpus, partitions[partition], model=models[model])
        for user, gpus, partition, model in zip(*(column.tolist() for column in columns), strict=True)
    ]

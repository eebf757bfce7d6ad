"""A policy that is told what preempting jobs costs, as it is learned while a simulation runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.preemption_costs.learner import OwnersKind, PreemptionCostLearner, kind_of
from slurm_soda.policies.sharing.snapshot import CpuJobsLastPolicy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.simulator.engine.preemption_log import PreemptionLog
from slurm_soda.simulator.runs.predicted_run_times import traits_of_workload
from slurm_soda.simulator.workload import Workload


class PolicyWithLearnedCosts:
    """A policy whose snapshots have :attr:`.ClusterSnapshot.preemption_costs`; one object serves one run.

    They come from the preemptions of the run so far, from the same object as in sodad. Jobs that save their state now and
    then tell when they did, those that save it when they are preempted tell nothing.
    """

    def __init__(self, policy: Policy, workload: Workload, log: PreemptionLog) -> None:
        """``log``: the run's own."""
        self._policy, self.name, self._log = policy, policy.name, log
        if isinstance(policy, CpuJobsLastPolicy):
            self.cpu_jobs_last: Literal[True] = True
        self.learner = PreemptionCostLearner()
        self._traits = traits_of_workload(workload)
        kinds: dict[OwnersKind, int] = {}
        codes = [kinds.setdefault(kind_of(traits), len(kinds)) for traits in self._traits]
        self._kinds, self._kind = list(kinds), np.array(codes, dtype=np.int64)
        self._every_s = workload.saves_every_s

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides, with what is known by now."""
        for seen in self._log.take(snapshot.now_s):
            self.learner.learn(self._traits[seen.row], seen.cost)
        if not self.learner.observed:
            return self._policy.decide(snapshot)
        jobs = snapshot.jobs
        rows, running = jobs.job_id - 1, jobs.state == JobState.RUNNING
        since_start_s = np.where(running, np.maximum(snapshot.now_s - jobs.start_s, 0.0), 0.0)
        every_s, since_saved_s = self._every_s[rows], np.full(len(rows), np.nan)
        for at in np.flatnonzero(running & (every_s > 0) & np.isfinite(jobs.remaining_s)).tolist():
            done_s = max(self._log.began_left_s(rows.item(at)) - jobs.remaining_s.item(at), 0.0)
            since_saved_s[at] = done_s % every_s.item(at)
        told = jobs.preemptible & (jobs.gpus > 0)
        present, of_row = np.unique(np.where(told, self._kind[rows], -1), return_inverse=True)
        codes = of_row.ravel().astype(np.int64)
        if present[:1].tolist() == [-1]:
            present, codes = present[1:], codes - 1
        kinds = [self._kinds[number] for number in present.tolist()]
        costs = self.learner.costs(kinds, codes, since_saved_s, since_start_s)
        return self._policy.decide(replace(snapshot, preemption_costs=costs))


def costs_differ(workload: Workload) -> bool:
    """Whether some preemptions cost more than others, so that there is anything to be learned."""
    stops = workload.preemptible & (workload.gpus > 0)
    return bool(stops.any() and (np.ptp(workload.restart_s[stops]) > 0 or workload.saves_every_s[stops].any()))

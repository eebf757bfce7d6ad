"""Any policy as it is: a whole snapshot at each decision, as the daemon takes one each cycle, through the same stages."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import chain
from typing import Any

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.preemption import limit_preemptions
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.session.ranking import INFINITY, JobStart, SessionJob
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState, JobTable, NodeTable
from slurm_soda.policies.tiresias.model_skews import find_model_skew
from slurm_soda.policies.waiting.overdue import mark_overdue
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.deciders.overdue_times import OverdueTimes
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.site.site_state import SiteState
from slurm_soda.simulator.workload import Workload

_ROUND = 6
"""Decimals of times in a snapshot: sums of many runs must reach a threshold that they reach on paper."""


class SnapshotDecider:
    """Keeps the columns of a snapshot and asks the whole decision; O(present jobs + nodes) a decision."""

    def __init__(
        self,
        policy: Policy,
        workload: Workload,
        cluster: SimulatedCluster,
        *,
        at_once: bool,
        max_preemptions: int = 0,
        passing_limit_s: float = INFINITY,
        site: SiteDescription | None = None,
    ) -> None:
        """``at_once``: preempted jobs leave at the instant of the decision, so that others may start there;
        ``max_preemptions``: of one job, 0: any number; ``passing_limit_s``: after such a wait no later job passes one;
        ``site``: by default one where all users are equal.
        """
        self._site = SiteState(site or SiteDescription(), workload, cluster)
        self._at_once, self._max_preemptions, self._passing_limit_s = at_once, max_preemptions, passing_limit_s
        self._overdue = OverdueTimes(passing_limit_s)
        self._policy, self._workload, self._cluster = policy, workload, cluster
        self._pipeline = pipeline_of(policy)
        self._next_event_s = INFINITY
        self._present: list[int] = []
        self._jobs: dict[int, SessionJob] = {}
        jobs, nodes = len(workload), len(cluster)
        self._state = np.full(jobs, JobState.PENDING, dtype=np.int8)
        self._start_s = np.full(jobs, np.nan)
        self._first_start_s = np.full(jobs, np.nan)
        self._resumes_s = np.full(jobs, np.inf)
        self._speed_ratio = np.ones(jobs)
        self._cpus = workload.cpus.copy()
        self._remaining_s = workload.expected_s.copy()
        self._executed_s = np.zeros(jobs)
        self._attained_gpu_s = np.zeros(jobs)
        self._waits_since_s = workload.submit_s.copy()
        self._skew = np.array([*(find_model_skew(model) for model in workload.models), np.nan])[workload.model]
        self._preemptions = np.zeros(jobs, dtype=np.int64)
        self._usable = np.ones(nodes, dtype=np.bool_)
        self._gpus_free, self._cpus_free = cluster.gpus.copy(), cluster.cpus.copy()
        self._memory_free_mib = cluster.memory_mib.copy()

    def submit(self, job: SessionJob) -> None:
        """A job waits: for the first time, or again after :meth:`end`, as an instance of a service does."""
        row = job.job_id - 1
        self._state[row] = JobState.PENDING
        self._start_s[row], self._resumes_s[row] = np.nan, np.inf
        self._executed_s[row], self._attained_gpu_s[row] = job.executed_s, job.attained_gpu_s
        insort(self._present, row)
        self._jobs[job.job_id] = job
        self._overdue.wait(row, self._waits_since_s.item(row))

    def end(self, job: SessionJob) -> None:
        self._hold(job, -1)
        row = job.job_id - 1
        self._overdue.leave(row)
        self._site.stop(row, job.start_s, self._stop_s(job))
        del self._present[bisect_left(self._present, row)]
        del self._jobs[job.job_id]

    def leaving(self, job: SessionJob) -> None:
        row = job.job_id - 1
        self._state[row] = JobState.COMPLETING
        self._preemptions[row] += 1

    def stopped(self, job: SessionJob) -> None:
        self._hold(job, -1)
        row = job.job_id - 1
        if self._state[row] != JobState.COMPLETING:
            self._preemptions[row] += 1
        self._state[row] = JobState.PENDING
        self._remaining_s[row] = job.remaining_s if job.remaining_s < INFINITY else np.nan
        self._waits_since_s[row] = self._stop_s(job)
        self._site.stop(row, job.start_s, float(self._waits_since_s[row]))
        self._executed_s[row], self._attained_gpu_s[row] = job.executed_s, job.attained_gpu_s
        self._start_s[row], self._resumes_s[row] = np.nan, np.inf
        self._overdue.wait(row, self._waits_since_s.item(row))

    def started(self, job: SessionJob) -> None:
        row = job.job_id - 1
        self._hold(job, 1)
        self._overdue.start(row, job.start_s)
        self._site.start(row, job.start_s)
        self._state[row] = JobState.RUNNING
        self._start_s[row], self._first_start_s[row] = job.start_s, job.first_start_s
        self._resumes_s[row], self._speed_ratio[row] = job.resumes_s, job.speed_ratio

    def _stop_s(self, job: SessionJob) -> float:
        """When the run ended that just did."""
        return job.start_s + job.executed_s - float(self._executed_s[job.job_id - 1])

    def rewrite(self, row: int, cpus: int) -> None:
        """A job that is about to wait asks for so many CPUs over all nodes."""
        self._cpus[row] = cpus

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        row = job.job_id - 1
        self._cpus[row] = sum(piece.cpus for piece in job.pieces)
        for old, new in zip(before, job.pieces, strict=True):
            self._cpus_free[old.node] += old.cpus - new.cpus
        self._remaining_s[row] = job.remaining_s if job.remaining_s < INFINITY else np.nan
        self._resumes_s[row], self._speed_ratio[row] = job.resumes_s, job.speed_ratio

    def set_usable(self, node: int, usable: bool) -> None:
        self._usable[node] = usable

    def next_event_s(self) -> float:
        return self._next_event_s

    def has_overdue(self, now_s: float) -> bool:
        """Whether a job waits or runs that is overdue: else the limit changes nothing."""
        return self._overdue.any_now(now_s)

    def next_overdue_s(self) -> float:
        """When the next job becomes overdue."""
        return self._overdue.next_s()

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        snapshot = self._snapshot(now_s)
        return self.follow(self.plan(snapshot), snapshot)

    def plan(self, snapshot: ClusterSnapshot) -> Plan:
        """What is decided on a snapshot: on the run's own, or on a real cluster's from a file."""
        return self._pipeline.decide(snapshot)

    def follow(self, plan: Plan, snapshot: ClusterSnapshot) -> tuple[list[SessionJob], list[JobStart]]:
        """What a plan says to do now, made on this snapshot."""
        now_s = snapshot.now_s
        for job_id in plan.promoted.tolist():
            self._promote(job_id, now_s)
        preempts = [self._jobs[preempt.job_id] for preempt in plan.preempts]
        # As the daemon's next cycle does, decide again once the preempted jobs have left: until then the plan does not know
        # when those who take their places will change the order.
        self._next_event_s = now_s if preempts and self._at_once else plan.next_event_s
        fitting = set(plan.starts.tolist())
        starts = self._without_occupied(
            plan,
            snapshot,
            [
                (self._jobs[job_id], pieces)
                for job_id, pieces in plan.places.items()
                if job_id in fitting or self._at_once
            ],
        )
        allowed = self._site.within_limits(starts)
        if len(allowed) < len(starts):
            self._next_event_s = (
                now_s  # what Slurm does not start is blocked from now on, and others may have its place
            )
        elif len(plan.order) > len(starts):
            self._next_event_s = min(self._next_event_s, self._site.next_change_s(now_s))
        return preempts, allowed

    def _without_occupied(self, _plan: Plan, _snapshot: ClusterSnapshot, starts: list[JobStart]) -> list[JobStart]:
        """Starts that can be carried out now."""
        return starts

    def _promote(self, job_id: int, now_s: float) -> None:
        job, row = self._jobs[job_id], job_id - 1
        job.executed_s = job.attained_gpu_s = 0.0
        self._executed_s[row] = self._attained_gpu_s[row] = 0.0
        self._waits_since_s[row] = now_s
        if self._state[row] == JobState.PENDING:
            self._overdue.wait(row, now_s)

    def _pieces_of(self, job: SessionJob) -> tuple[NodeAllocation, ...]:
        """What a running job holds."""
        return job.pieces

    def _hold(self, job: SessionJob, sign: int) -> None:
        for node, gpus, cpus, memory_mib in self._pieces_of(job):
            self._gpus_free[node] -= sign * gpus
            self._cpus_free[node] -= sign * cpus
            self._memory_free_mib[node] -= sign * memory_mib

    def nodes(self) -> NodeTable:
        """The nodes as they stand now."""
        nodes, usable = self._cluster, self._usable
        return NodeTable(
            name=nodes.node_names,
            usable=usable.copy(),
            gpus=nodes.gpus,
            gpu_type=nodes.gpu_type,
            cpus=nodes.cpus,
            gpus_free=np.where(usable, self._gpus_free, 0),
            cpus_free=np.where(usable, self._cpus_free, 0),
            memory_mib=nodes.memory_mib,
            memory_free_mib=np.where(usable, self._memory_free_mib, 0),
            in_partition=nodes.in_partition,
            gpu_types=nodes.gpu_types,
        )

    def _rows(self) -> IntColumn:
        """The jobs that a snapshot shows, ascending."""
        return np.array(self._present, dtype=np.int64)

    def _snapshot(self, now_s: float) -> ClusterSnapshot:
        rows = self._rows()
        jobs = limit_preemptions(self._table(now_s, rows), self._max_preemptions)
        snapshot = ClusterSnapshot(
            now_s=now_s,
            jobs=self._site.complete(jobs, rows),
            nodes=self.nodes(),
            partitions=self._cluster.partitions,
            tiers=self._site.tiers,
        )
        return mark_overdue(snapshot, self._passing_limit_s)

    def _table(self, now_s: float, rows: IntColumn) -> JobTable:
        work = self._workload
        zeros = np.zeros(len(rows), dtype=np.int64)
        return JobTable(
            job_id=rows + 1,
            state=self._state[rows],
            user=work.user[rows],
            partition=work.partition[rows],
            submit_s=work.submit_s[rows],
            first_start_s=self._first_start_s[rows],
            start_s=self._start_s[rows],
            time_limit_s=work.time_limit_s[rows],
            gpus=work.gpus[rows],
            nodes=work.nodes[rows],
            gpus_per_node=work.gpus_per_node[rows],
            gpu_type=work.gpu_type[rows],
            cpus=self._cpus[rows],
            memory_mib=work.memory_mib[rows],
            skew=self._skew[rows],
            priority=self._site.priority(rows, self._state[rows] == JobState.PENDING, self._waits_since_s[rows], now_s),
            site_factor=zeros,
            preemptible=work.preemptible[rows],
            preemptions=self._preemptions[rows],
            users=work.users,
            partitions=work.partitions,
            gpu_types=work.gpu_types,
            **self._times(rows, now_s),
            **self._allocations(rows),
        )

    def _times(self, rows: IntColumn, now_s: float) -> dict[str, Any]:
        pending = self._state[rows] == JobState.PENDING
        ran_s = np.where(pending, 0.0, now_s - self._start_s[rows])
        done_s = np.maximum(now_s - self._resumes_s[rows], 0.0) * self._speed_ratio[rows]
        return {
            "executed_s": np.round(self._executed_s[rows] + ran_s, _ROUND),
            "attained_gpu_s": np.round(self._attained_gpu_s[rows] + ran_s * self._workload.gpus[rows], _ROUND),
            "waited_s": np.maximum(np.where(pending, now_s, self._start_s[rows]) - self._waits_since_s[rows], 0.0),
            "remaining_s": np.maximum(self._remaining_s[rows] - done_s, 0.0),
        }

    def _allocations(self, rows: IntColumn) -> dict[str, Any]:
        holding = np.flatnonzero(self._state[rows] != JobState.PENDING)
        pieces = [self._pieces_of(self._jobs[job_id]) for job_id in (rows[holding] + 1).tolist()]
        numbers = chain.from_iterable(chain.from_iterable(pieces))
        counts = np.zeros(len(rows) + 1, dtype=np.int64)
        counts[holding + 1] = [len(held) for held in pieces]
        columns = np.fromiter(numbers, np.int64, 4 * int(counts.sum())).reshape(-1, 4)
        return {
            "alloc_start": np.cumsum(counts),
            "alloc_node": columns[:, 0],
            "alloc_gpus": columns[:, 1],
            "alloc_cpus": columns[:, 2],
        }

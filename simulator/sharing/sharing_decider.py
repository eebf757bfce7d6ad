"""Any policy over single GPUs: a snapshot that shows them, and plans that name them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.session.ranking import JobStart, SessionJob, StartsOnlyPolicy
from slurm_soda.policies.sharing import snapshot
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import IntColumn, JobState
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.sharing.co_runner_slowdowns import CoRunnerSlowdowns, GpuPlacement
from slurm_soda.simulator.sharing.plan_checks import SharingPlanCheck, check_cpus_and_memory
from slurm_soda.simulator.sharing.sharing_rules import SharingInputs
from slurm_soda.simulator.workload import Workload


class SharingDecider(SnapshotDecider):
    """As its base, with GPUs one by one; O(present jobs + nodes + GPUs held) a decision.

    A policy whose plans name no GPUs gets the same snapshots; its jobs get GPUs of their own.
    """

    def __init__(
        self,
        policy: Policy,
        workload: Workload,
        cluster: SimulatedCluster,
        slowdowns: CoRunnerSlowdowns,
        together: SharingInputs,
        *,
        most: int,
        at_once: bool,
        max_preemptions: int = 0,
    ) -> None:
        """A policy that puts at most so many jobs onto one GPU.

        ``at_once``: preempted jobs leave at the instant of the decision, so that others may start there;
        ``max_preemptions``: of one job, 0: any number.
        """
        super().__init__(policy, workload, cluster, at_once=at_once, max_preemptions=max_preemptions)
        self._slowdowns, self._held = slowdowns, slowdowns.devices
        self._kinds = together.kinds
        self._most = most
        self._starts_only = isinstance(policy, StartsOnlyPolicy)
        self._bounded = bool(np.isfinite(workload.max_slowdown).any())
        self._waiting = 0
        self._sub_batch = self._kinds.batch.copy()
        self._memory_mib = np.full(len(self._held), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._iteration_s = np.where(workload.iterations > 0, workload.run_s / workload.iterations, np.nan)

    def submit(self, job: SessionJob) -> None:
        self._waiting += 1
        super().submit(job)

    def started(self, job: SessionJob) -> None:
        self._waiting -= 1
        super().started(job)

    def stopped(self, job: SessionJob) -> None:
        self._waiting += 1
        self._sub_batch[job.job_id - 1] = self._kinds.batch[job.job_id - 1]
        super().stopped(job)

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        if self._starts_only and not self._waiting:
            self._next_event_s = math.inf
            return [], []
        self._slowdowns.observe(now_s)
        return super().decide(now_s)

    def next_event_s(self) -> float:
        """Also when it is seen that somebody's bound does not hold, which was hoped: whoever preempts can end that."""
        wanted_s = super().next_event_s()
        if self._starts_only or not self._bounded:
            return wanted_s
        return min(wanted_s, self._slowdowns.next_breach_s(self._workload.max_slowdown))

    def follow(self, plan: Plan, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        preempts, starts = super().follow(plan, now_s)
        leaving = [job.job_id - 1 for job in preempts]
        label, usable = self._workload.label.__getitem__, self._usable.tolist()
        draft = SharingPlanCheck(self._policy.name, now_s, self._held, self._most, usable, label)
        if self._at_once:
            draft.vacate(leaving)
        self._check_nodes(draft, preempts, starts)
        gone = set(leaving) if self._at_once else set()
        for job, pieces in starts:
            row = job.job_id - 1
            if self._state[row] != JobState.PENDING and row not in gone:
                raise draft.fault(row, "it runs already and is not preempted")
            place = self._place(draft, plan, job, pieces)
            self._check_partners(draft, row, place, draft.add(row, pieces, place), leaving)
            self._slowdowns.planned[row] = place
            self._sub_batch[row] = place.sub_batch or self._kinds.batch[row]
        return preempts, starts

    def _place(
        self, draft: SharingPlanCheck, plan: Plan, job: SessionJob, pieces: Sequence[NodeAllocation]
    ) -> GpuPlacement:
        devices = plan.devices.get(job.job_id) if isinstance(plan, SharingPlan) else None
        sub_batch = plan.sub_batches.get(job.job_id, 0) if isinstance(plan, SharingPlan) else 0
        whole = int(self._kinds.batch[job.job_id - 1])
        if devices is None:
            devices = draft.idle(pieces)
        return GpuPlacement(tuple(sorted(devices)), 0 if sub_batch == whole else sub_batch)

    def _check_partners(
        self, draft: SharingPlanCheck, row: int, place: GpuPlacement, partners: set[int], leaving: Sequence[int]
    ) -> None:
        """Nobody shares who cannot, and nobody is sent where the policy knew that the job does not fit."""
        if not partners:
            return
        kinds, label = self._kinds, draft.label
        mine = kinds.running(row, place.sub_batch)
        for one in (row, *sorted(partners)):
            if kinds.code[one] < 0:
                raise draft.fault(row, f"nobody knows the model of job {label(one)} beside others; see --model-map")
            if not self._workload.shares[one]:
                raise draft.fault(row, f"job {label(one)} does not allow sharing")
            if one != row and (one in leaving or self._state[one] == JobState.COMPLETING):
                raise draft.fault(row, f"job {label(one)} is leaving that GPU")
        for device in place.devices:
            there = [kinds[kinds.running(one, int(self._sub_batch[one]))] for one in draft.on(device) if one != row]
            if there and self._slowdowns.learner.known.never_fits((kinds[mine], *there)):
                raise draft.fault(row, f"it is known not to fit into GPU {device} beside {', '.join(map(str, there))}")

    def _check_nodes(self, draft: SharingPlanCheck, preempts: Sequence[SessionJob], starts: Sequence[JobStart]) -> None:
        free = {
            piece.node: [int(self._cpus_free[piece.node]), int(self._memory_free_mib[piece.node])]
            for _, pieces in starts
            for piece in pieces
        }
        for job in preempts if self._at_once else ():
            for piece in job.pieces:
                if piece.node in free:
                    free[piece.node][0] += piece.cpus
                    free[piece.node][1] += piece.memory_mib
        check_cpus_and_memory(draft, {job.job_id - 1: pieces for job, pieces in starts}, free)

    def _idle_gpus(self) -> IntColumn:
        return self._held.free

    def _snapshot(self, now_s: float) -> SharingSnapshot:
        jobs = self._table(now_s)
        rows = np.array(self._present, dtype=np.int64)
        held_start, held = self._held.compressed_rows(self._present)
        return SharingSnapshot(
            now_s=now_s,
            jobs=jobs,
            nodes=self.nodes(),
            partitions=self._cluster.partitions,
            devices=snapshot.GpuDevices(self._held.first, self._memory_mib, held_start, held),
            sharing=SharingJobs(
                kinds=self._kinds.whole,
                kind=self._kinds.code[rows],
                batch=self._kinds.batch[rows],
                sub_batch=self._sub_batch[rows],
                iterations=jobs.remaining_s / self._iteration_s[rows],
                shares=self._workload.shares[rows],
                max_slowdown=self._workload.max_slowdown[rows],
            ),
            known=self._slowdowns.learner.known,
        )

"""Any policy over single GPUs: a snapshot that shows them, and plans that name them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from slurm_soda.policies.engine.demand import group_requests
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.session.ranking import JobStart, SessionJob, StartsOnlyPolicy
from slurm_soda.policies.sharing.engine.assembly import assemble_sharing_snapshot
from slurm_soda.policies.sharing.engine.plan_check import GpuPlacement, SharingPlanError, check_sharing_plan
from slurm_soda.policies.sharing.known_order import KnownOrderPolicy
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import CpuJobsLastPolicy, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState, NodeTable
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.sharing.co_runner_slowdowns import CoRunnerSlowdowns
from slurm_soda.simulator.sharing.join_outlook import JoinOutlook
from slurm_soda.simulator.sharing.plain_decisions import PlainDecisions
from slurm_soda.simulator.sharing.ranked_decisions import RankedDecisions, knows_run_times
from slurm_soda.simulator.sharing.sharing_rules import SharingInputs
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.workload import Workload


class JobOverdueError(Exception):
    """A job has waited for so long that no later one may pass it, where that is to end the simulation."""


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
        passing_limit_s: float = math.inf,
        site: SiteDescription | None = None,
        stops_at_overdue: bool = False,
    ) -> None:
        """A policy that puts at most so many jobs onto one GPU.

        ``at_once``: preempted jobs leave at the instant of the decision, so that others may start there;
        ``max_preemptions``: of one job, 0: any number; ``passing_limit_s``: after such a wait no later job passes one;
        ``stops_at_overdue``: :class:`JobOverdueError` once there is such a wait.
        """
        bounds: dict[str, Any] = {"max_preemptions": max_preemptions, "passing_limit_s": passing_limit_s}
        super().__init__(policy, workload, cluster, at_once=at_once, site=site, **bounds)
        self._slowdowns, self._held, self._observed = slowdowns, slowdowns.devices, slowdowns.observed
        self._kinds = together.kinds
        self._most = most
        self._starts_only = isinstance(policy, StartsOnlyPolicy)
        self._bounded = bool(np.isfinite(workload.max_slowdown).any())
        self._waiting, self._decided_s = 0, -math.inf
        self._known = slowdowns.learner.known
        """What the policy knew of pairs when it was last asked."""
        self._asked_s = -math.inf
        ruled = site is not None and site.rules_starts
        self._unasked: PlainDecisions | RankedDecisions | None = None
        """Who decides what needs no policy; ``None``: nobody."""
        self._spared = at_once and not (ruled or cluster.failures) and isinstance(policy, CpuJobsLastPolicy)
        """Whether the policy need not be asked each time."""
        ordered = self._spared and knows_run_times(workload)
        self._ordered = policy if ordered and isinstance(policy, KnownOrderPolicy) else None
        """The policy, if single jobs tell its order."""
        self._demand = group_requests(workload, cluster.partitions, cluster.gpu_types)
        self._leaving: set[int] = set()
        """Jobs that still hold what they leave."""
        self._must = False
        """The policy was to be asked at the last decision, whoever else might have told."""
        self._had_overdue = False
        """A job was overdue at the last decision."""
        self._stops_at_overdue = stops_at_overdue
        self._sub_batch = self._kinds.batch.copy()
        self._starting: dict[int, int] = {}
        """By row: sub-batches of jobs that are about to start, some of which stop before."""
        self._memory_mib = np.full(len(self._held), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._iteration_s = np.where(workload.iterations > 0, workload.run_s / workload.iterations, np.nan)
        self.carry_out_by(IDEAL, math.inf)

    def carry_out_by(self, mechanism: Mechanism, checkpoint_every_s: float) -> None:
        """What policies are told of how plans are carried out, and of how often jobs save their state; to be said before
        the first job comes.
        """
        self._mechanism = mechanism
        own_s = self._workload.saves_every_s
        every_s = np.where(own_s > 0, own_s, checkpoint_every_s)
        self._saves_every_s = np.where(self._workload.preemptible, every_s, np.inf)
        self._unasked = None
        self._find_unasked()

    def submit(self, job: SessionJob) -> None:
        self._waiting += 1
        super().submit(job)
        if self._unasked is not None:
            self._unasked.submit(job)

    def started(self, job: SessionJob) -> None:
        self._waiting -= 1
        row = job.job_id - 1
        self._sub_batch[row] = self._starting.pop(row, self._kinds.batch[row])
        super().started(job)
        if isinstance(self._unasked, RankedDecisions) and self._held.shared:
            self._unasked = None
        if self._unasked is not None:
            self._unasked.started(job)

    def leaving(self, job: SessionJob) -> None:
        super().leaving(job)
        self._leaving.add(job.job_id)
        if isinstance(self._unasked, PlainDecisions):
            self._unasked.leaving()

    def stopped(self, job: SessionJob) -> None:
        self._waiting += 1
        self._sub_batch[job.job_id - 1] = self._kinds.batch[job.job_id - 1]
        super().stopped(job)
        self._leaving.discard(job.job_id)
        if self._unasked is not None:
            self._unasked.stopped(job)

    def end(self, job: SessionJob) -> None:
        super().end(job)
        self._leaving.discard(job.job_id)
        if self._unasked is not None:
            self._unasked.ended(job)
        if self._observed is not None:
            self._observed.end(job.job_id)

    def changed(self, job: SessionJob, before: tuple[NodeAllocation, ...]) -> None:
        super().changed(job, before)
        if isinstance(self._unasked, RankedDecisions):
            self._unasked = None  # it has jobs in the order of their old speeds

    def decide(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        self._decided_s = now_s
        self._starting.clear()
        due = self._observed is not None and self._observed.is_due(now_s)
        if self._starts_only and not self._waiting and not due:
            self._next_event_s = math.inf
            return [], []
        self._slowdowns.observe(now_s)
        had_overdue, self._had_overdue = self._had_overdue, self.has_overdue(now_s)
        if self._stops_at_overdue and self._had_overdue:
            raise JobOverdueError
        # Once nobody is overdue any more, the policy may have what was kept until then.
        must = self._must = due or had_overdue or self._had_overdue
        unasked = self._find_unasked()
        if isinstance(unasked, RankedDecisions):
            return self._decide_by_order(unasked, now_s, must=must)
        starts = None if must or unasked is None else self._decide_plainly(unasked, now_s)
        if starts is not None:
            return [], starts
        if unasked is not None:
            unasked.decided()
        self._known, self._asked_s = self._slowdowns.learner.known, now_s
        return super().decide(now_s)

    def _find_unasked(self) -> PlainDecisions | RankedDecisions | None:
        """Who decides what needs no policy, as jobs stand now."""
        if not self._spared:
            return None
        ordered = None if self._held.shared or self._leaving else self._ordered
        if isinstance(self._unasked, PlainDecisions if ordered is None else RankedDecisions):
            return self._unasked
        idle = self._idle_nodes()
        states = [(job, int(self._state[job.job_id - 1])) for job in self._jobs.values()]
        waiting = [job for job, state in states if state == JobState.PENDING]
        running = [job for job, state in states if state != JobState.PENDING]
        if ordered is None:
            self._unasked = PlainDecisions(self._demand, self._workload.shares, idle, self._held)
        else:
            outlook = JoinOutlook(
                ordered,
                self._workload,
                self._kinds,
                shapes=self._demand.shapes,
                gpus=self._cluster.total_gpus,
                mechanism=self._mechanism,
                saves_every_s=self._saves_every_s,
                observes=self._slowdowns.learner.observes,
            )
            self._unasked = RankedDecisions(ordered, self._demand, idle, outlook)
        self._unasked.add(waiting, running)
        return self._unasked

    def _idle_nodes(self) -> NodeTable:
        nodes = self.nodes()
        return replace(nodes, gpus_free=nodes.gpus, cpus_free=nodes.cpus, memory_free_mib=nodes.memory_mib)

    def _decide_by_order(
        self, ranked: RankedDecisions, now_s: float, *, must: bool
    ) -> tuple[list[SessionJob], list[JobStart]]:
        """As the policy's order says, as far as that will do; ``must``: the policy is to be asked."""
        known = self._slowdowns.learner.known
        again = now_s >= self._next_event_s or self._knows_more(now_s)
        starts = None if must else ranked.decide(now_s, known, look=again)
        if starts is not None:
            self._choose_gpus(starts)
            if ranked.wants_hosts(starts):
                self._next_event_s = now_s
            elif again or not ranked.may_join:
                self._next_event_s = math.inf
            return [], starts
        self._known, self._asked_s = known, now_s
        apart = not (must or ranked.may_join)
        preempts, starts = self._decide_apart(now_s) if apart else super().decide(now_s)
        ranked.asked(anew=must or bool(preempts))
        if apart and not preempts:
            self._next_event_s = now_s if ranked.wants_hosts(starts) else math.inf
        return preempts, starts

    def _decide_apart(self, now_s: float) -> tuple[list[SessionJob], list[JobStart]]:
        """The policy's decision where nobody shares, nor might: it need not know single GPUs."""
        snapshot = super()._snapshot(now_s)
        plan = self.plan(snapshot)
        preempts, starts = super().follow(plan, snapshot)
        self._choose_gpus(starts, leaving={preempt.job_id - 1 for preempt in preempts})
        return preempts, starts

    def _choose_gpus(self, starts: Iterable[JobStart], leaving: Collection[int] = ()) -> None:
        """GPUs of their own for jobs that start without a plan that names any."""
        given: set[int] = set()
        for job, pieces in starts:
            self._slowdowns.planned[job.job_id - 1] = GpuPlacement(self._held.choose(pieces, given, leaving))

    def _decide_plainly(self, plain: PlainDecisions, now_s: float) -> list[JobStart] | None:
        """Who starts, as far as it does not take the policy to say so."""
        if not plain.idle and (now_s >= self._next_event_s or self._knows_more(now_s)):
            return None
        starts = plain.decide()
        self._choose_gpus(starts or ())
        if plain.idle:
            self._next_event_s = math.inf
        return starts

    def _knows_more(self, now_s: float) -> bool:
        """Whether something was learned of pairs since the policy was asked, or somebody made up for being slowed."""
        made_up = self._observed is not None and self._observed.next_due_s(self._asked_s) <= now_s
        return made_up or self._known is not self._slowdowns.learner.known

    def next_event_s(self) -> float:
        """Also when it is seen that somebody's bound does not hold, which was hoped: whoever preempts can end that, and the
        pair is parted.
        """
        wanted_s = min(super().next_event_s(), self.next_overdue_s())
        if isinstance(self._unasked, RankedDecisions) and not self._must:
            wanted_s = min(wanted_s, self._unasked.next_event_s())
        if self._observed is not None:
            wanted_s = min(wanted_s, self._observed.next_due_s(self._decided_s))
        if self._starts_only or not self._bounded:
            return wanted_s
        return min(wanted_s, self._slowdowns.next_breach_s(self._workload.max_slowdown))

    def follow(self, plan: Plan, snapshot: ClusterSnapshot) -> tuple[list[SessionJob], list[JobStart]]:
        assert isinstance(snapshot, SharingSnapshot)
        preempts, starts = super().follow(plan, snapshot)
        freed = [piece for job in preempts for piece in job.pieces] if self._at_once else None
        label = self._workload.label
        try:
            places = check_sharing_plan(
                snapshot,
                plan,
                {job.job_id: pieces for job, pieces in starts},
                self._most,
                freed=freed,
                label=lambda job_id: label[job_id - 1],
            )
        except SharingPlanError as error:
            hint = "; see --model-map" if error.unknown_kind else ""
            raise SimulatorError(
                f"policy {self._policy.name} at {snapshot.now_s:g} s {error.describe(label[error.job_id - 1])}{hint}"
            ) from error
        for job_id, place in places.items():
            self._slowdowns.planned[job_id - 1] = place
            self._starting[job_id - 1] = place.sub_batch or self._kinds.batch[job_id - 1]
        for preempt in plan.preempts:
            if preempt.parted_from:
                self._slowdowns.part(preempt.job_id - 1, preempt.parted_from)
        return preempts, starts

    def _without_occupied(self, plan: Plan, snapshot: ClusterSnapshot, starts: list[JobStart]) -> list[JobStart]:
        """Without those whose GPUs a job still holds that is leaving: a revoked guest, for some tenths of a second."""
        leaving = np.flatnonzero(snapshot.jobs.state == JobState.COMPLETING).tolist()
        if not leaving or not isinstance(plan, SharingPlan) or not isinstance(snapshot, SharingSnapshot):
            return starts
        held = {device for row in leaving for device in snapshot.devices.of(row).tolist()}
        return [start for start in starts if held.isdisjoint(plan.devices.get(start[0].job_id, ()))]

    def _rows(self) -> IntColumn:
        """Without running jobs that have no GPUs, if all that counts of them is what they hold."""
        rows = super()._rows()
        if self._ordered is None or self._had_overdue:
            return rows
        shown: IntColumn = rows[(self._workload.gpus[rows] > 0) | (self._state[rows] == JobState.PENDING)]
        return shown

    def _snapshot(self, now_s: float) -> SharingSnapshot:
        snapshot = super()._snapshot(now_s)
        rows = snapshot.jobs.job_id - 1
        sharing = SharingJobs(
            kinds=self._kinds.whole,
            kind=self._kinds.code[rows],
            batch=self._kinds.batch[rows],
            sub_batch=self._sub_batch[rows],
            iterations=snapshot.jobs.remaining_s / self._iteration_s[rows],
            shares=self._workload.shares[rows],
            max_slowdown=self._workload.max_slowdown[rows],
            saves_every_s=self._saves_every_s[rows],
            triable=np.full(len(rows), self._slowdowns.learner.observes),
        )
        if self._observed is not None:
            slowdown, lasted_s = self._observed.columns(rows.tolist(), now_s)
            behind_s = self._observed.behind_s(rows.tolist(), now_s)
            sharing = replace(
                sharing, observed_slowdown=slowdown, together_s=lasted_s, behind_s=behind_s, apart=self._observed.apart
            )
        devices = self._held.devices(rows.tolist(), self._memory_mib)
        return assemble_sharing_snapshot(snapshot, devices, sharing, self._slowdowns.learner.known, self._mechanism)

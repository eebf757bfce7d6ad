"""All preemptions on their way: beginning what a plan asks for, and one step of each a cycle."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.preemption.refused_victims import RefusedVictims
from slurm_soda.daemon.preemption.state_machine import (
    FINAL_PHASES,
    LEAVING_PHASES,
    NODES_REPORT_WITHIN_S,
    PHASE_AFTER,
    SLURM_SAVES_WITHIN_S,
    ActivePreemption,
    PreemptionCommand,
    PreemptionContext,
    PreemptionDecision,
    PreemptionPhase,
    decide_next_step,
    has_made_way,
    is_back,
    returned_s,
)
from slurm_soda.daemon.preemption.successors import Details, can_take_places, passes_successor
from slurm_soda.daemon.preemption.vain_preemptions import VainPreemptions, find_vain
from slurm_soda.daemon.settings.scheduling import PreemptionSettings
from slurm_soda.daemon.store.audit_log import ChangeOutcome
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.plan import Plan
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.snapshot import is_preemptible, is_revocable
from slurm_soda.slurm_ext.write import job_changes
from slurm_soda.slurm_ext.write.job_changes import JobChange

RETRY_AFTER_S = 2.0
"""Pause after Slurm refused a step."""

_NO_DETAILS: Details = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PreemptionStep:
    """One step to send."""

    active_preemption: ActivePreemption
    send: PreemptionCommand
    change: JobChange


@dataclass(slots=True)
class ActivePreemptions:
    """The preemptions that are not over, by job id: one a job."""

    settings: PreemptionSettings
    by_job: dict[int, ActivePreemption] = field(default_factory=dict)
    refused: RefusedVictims = field(default_factory=RefusedVictims)
    vain: VainPreemptions = field(default_factory=VainPreemptions)
    _succeeded: list[int] = field(default_factory=list)

    @property
    def unfinished(self) -> int:
        """How many jobs have not been told yet that they may start again."""
        return sum(p.phase != "released" for p in self.by_job.values())

    @property
    def requeued(self) -> set[int]:
        """Jobs that Slurm has requeued at our word."""
        return {p.job_id for p in self.by_job.values() if p.phase in ("requeued", "released")}

    @property
    def leaving(self) -> list[int]:
        """Jobs whose preemption has begun and that may still run."""
        return [p.job_id for p in self.by_job.values() if p.phase in ("signalled", "requeued")]

    @property
    def successors(self) -> set[int]:
        """Jobs for which others leave, or have left and do not compete again yet."""
        return {job_id for p in self.by_job.values() if p.phase in LEAVING_PHASES for job_id in p.for_jobs}

    def advance(
        self,
        jobs: Mapping[int, SlurmJob],
        plan: Plan | None,
        at: Instant,
        *,
        may_begin: bool,
        left: Collection[int] = (),
        boot_s: float = math.inf,
        details: Details = _NO_DETAILS,
        led: Collection[int] = (),
    ) -> tuple[list[PreemptionStep], list[ActivePreemption]]:
        """One step of each: what to send, most advanced first, and those whose phase changed without sending.

        A phase is changed here at once; what is sent changes it only when Slurm took it (:meth:`note`). ``left`` are jobs
        whose former run has certainly left, ``boot_s`` is as in :class:`PreemptionContext`, ``details`` are of waiting jobs,
        ``led`` go before all others whatever the plan says, and fit into what is free.
        """
        self.refused.keep(jobs)
        self.vain.keep(jobs, at.now_s, at.steady_s)
        leads = set(led)
        starts = set() if plan is None else {*plan.starts.tolist(), *leads}
        behind = set() if plan is None else set(plan.behind)
        waiting = {job_id for job_id, job in jobs.items() if can_take_places(job, at.now_s)} if self.by_job else set()
        preemption_steps: list[PreemptionStep] = []
        changed: list[ActivePreemption] = []
        for active_preemption in self.by_job.values():
            job, successors = jobs.get(active_preemption.job_id), active_preemption.successors
            successors.observe(active_preemption.for_jobs, jobs, details, starts)
            others = waiting - successors.changed
            wanted = active_preemption.job_id in starts and not leads.intersection(active_preemption.for_jobs)
            context = PreemptionContext(
                at,
                may_begin,
                wanted and not passes_successor(plan, active_preemption.job_id, active_preemption.for_jobs, others),
                others,
                self.settings.release_after_s,
                active_preemption.job_id in left,
                boot_s,
            )
            back = job if is_back(active_preemption, job) else None
            if back is not None:
                active_preemption.returned_s = returned_s(active_preemption, back, context)
            step = decide_next_step(active_preemption, job, context)
            if plan is not None and back is not None:
                self._judge(active_preemption, back, step, context, jobs, starts.difference(behind) | leads)
            if step.phase != active_preemption.phase:
                self._count(active_preemption, step.phase)
                active_preemption.phase = step.phase
                active_preemption.reason = _with(active_preemption.reason, step.why)
                changed.append(active_preemption)
            if _awaits_nodes(active_preemption, step, at.steady_s):
                continue
            if step.send is not None and job is not None and at.steady_s >= active_preemption.retry_s:
                change = _change(active_preemption, step, job, wanted=context.wanted)
                preemption_steps.append(PreemptionStep(active_preemption, step.send, change))
        preemption_steps.sort(
            key=lambda preemption_step: ("start-now", "requeue-ended", "requeue", "signal").index(preemption_step.send)
        )
        return preemption_steps, changed

    def _judge(  # noqa: PLR0917 - a judgement looks at both sides
        self,
        active_preemption: ActivePreemption,
        job: SlurmJob,
        step: PreemptionDecision,
        context: PreemptionContext,
        jobs: Mapping[int, SlurmJob],
        starts: Collection[int],
    ) -> None:
        """Note which jobs did not start on the places that were left for them, once those are left no longer.

        ``starts`` are those that fit now, on nodes which Slurm keeps for nobody.
        """
        if active_preemption.phase == "released":
            return
        if step.send is None and step.phase not in ("released", "done"):
            waiting = {one for one in active_preemption.for_jobs if one in context.waiting}
            active_preemption.displaced |= waiting.difference(starts)
            return
        waited = has_made_way(active_preemption, job, context)
        found = find_vain(active_preemption, jobs, starts, now_s=context.at.now_s, waited=waited)
        begun_s, asked = active_preemption.created_steady_s, active_preemption.successors.asked
        for job_id in found:
            self.vain.note(asked[job_id].request, job_id, begun_s, context.at.steady_s, context.release_after_s)
        active_preemption.vain_for = tuple(found)

    def begin(
        self,
        plan: Plan,
        jobs: Mapping[int, SlurmJob],
        job_cache: JobCache,
        at: Instant,
        details: Details = _NO_DETAILS,
    ) -> list[PreemptionStep]:
        """The plan's new preemptions, each with its first step; :meth:`adopt` those that the change limits let through.

        A job that others already leave for gets no further victims until they have left.
        """
        served = {job_id for p in self.by_job.values() if _still_leaving(p, jobs) for job_id in p.for_jobs}
        begun: list[PreemptionStep] = []
        for wanted in plan.preempts:
            job = jobs.get(wanted.job_id)
            if job is None or job.state != "RUNNING" or wanted.job_id in self.by_job:
                continue
            if not is_preemptible(job) and not is_revocable(job):
                continue
            if wanted.for_jobs and served.issuperset(wanted.for_jobs):
                continue
            active_preemption = ActivePreemption(
                job_id=wanted.job_id,
                submit_s=job_cache.submit_s(wanted.job_id),
                restart=job.restarts,
                phase="intended",
                created_s=at.now_s,
                created_steady_s=at.steady_s,
                deadline_s=at.steady_s + self.grace_s(job),
                for_jobs=wanted.for_jobs,
                reason=wanted.reason,
            )
            active_preemption.successors.observe(wanted.for_jobs, jobs, details)
            context = PreemptionContext(at, True, False, frozenset(), self.settings.release_after_s)
            step = decide_next_step(active_preemption, job, context)
            if step.send is not None:
                begun.append(PreemptionStep(active_preemption, step.send, _change(active_preemption, step, job)))
        return begun

    def adopt(self, begun: Sequence[ActivePreemption]) -> None:
        """Follow these from now on."""
        self.by_job |= {p.job_id: p for p in begun}

    def keep_times(self, before: ActivePreemptions) -> None:
        """Take over what only the steady clock knows from what this process followed ``before`` it read the store again."""
        for job_id, known in before.by_job.items():
            read = self.by_job.get(job_id)
            if read is not None and (read.pk, read.phase) == (known.pk, known.phase):
                read.created_steady_s, read.deadline_s = known.created_steady_s, known.deadline_s
                read.returned_s, read.successors = known.returned_s, known.successors

    def note(self, preemption_step: PreemptionStep, outcome: ChangeOutcome, job: SlurmJob, steady_s: float) -> None:
        """Take in what became of a step that was sent, at an instant of the steady clock."""
        active_preemption = preemption_step.active_preemption
        if outcome.state == "failed":
            active_preemption.failures += 1
            active_preemption.retry_s = steady_s + RETRY_AFTER_S
            if active_preemption.phase in LEAVING_PHASES:
                self.refused.note(active_preemption.job_id, active_preemption.restart, steady_s)
        if outcome.state != "done":
            return
        active_preemption.failures = 0
        self._count(active_preemption, PHASE_AFTER[preemption_step.send])
        active_preemption.phase = PHASE_AFTER[preemption_step.send]
        if preemption_step.send in ("signal", "requeue"):
            active_preemption.deadline_s = steady_s + self.grace_s(job)
        if preemption_step.send == "start-now":
            active_preemption.deadline_s = steady_s + SLURM_SAVES_WITHIN_S

    def _count(self, active_preemption: ActivePreemption, then: PreemptionPhase) -> None:
        """A preemption counts once: when its job is seen back in the queue."""
        if then in ("released", "done") and active_preemption.phase != "released":
            self._succeeded.append(active_preemption.job_id)

    def take_succeeded(self) -> list[int]:
        """Jobs that were preempted since the last call; to be saved together with the phases."""
        taken, self._succeeded = self._succeeded, []
        return taken

    def grace_s(self, job: SlurmJob) -> float:
        """How long a job gets to save its state."""
        asked = job.hints.checkpoint_grace_s
        return min(self.settings.default_grace_s if asked is None else float(asked), self.settings.max_grace_s)

    def drop_over(self) -> None:
        """Stop following those that are over."""
        self.by_job = {job_id: p for job_id, p in self.by_job.items() if p.phase not in FINAL_PHASES}


def _awaits_nodes(active_preemption: ActivePreemption, step: PreemptionDecision, steady_s: float) -> bool:
    """Whether the nodes may still have to tell slurmctld that a job which it shows running has left."""
    if step.send != "requeue" or active_preemption.phase != "requeued":
        active_preemption.forgotten_s = float("inf")
        return False
    active_preemption.forgotten_s = min(active_preemption.forgotten_s, steady_s)
    return steady_s < active_preemption.forgotten_s + NODES_REPORT_WITHIN_S


def _still_leaving(active_preemption: ActivePreemption, jobs: Mapping[int, SlurmJob]) -> bool:
    """Its places are on their way to be free."""
    job = jobs.get(active_preemption.job_id)
    present: Collection[str] = ("RUNNING", "SUSPENDED", "COMPLETING")
    return active_preemption.phase in LEAVING_PHASES and job is not None and job.state in present


def _change(
    active_preemption: ActivePreemption, step: PreemptionDecision, job: SlurmJob, *, wanted: bool = False
) -> JobChange:
    reason = _with(active_preemption.reason, step.why)
    if step.send == "signal":
        return job_changes.signal_change(job.job_id, job.hints.checkpoint_signal or "TERM", reason)
    if step.send == "start-now":
        return job_changes.start_now_change(job.job_id, reason, keeps_lift=wanted)
    return job_changes.requeue_change(job.job_id, reason, ended=step.send == "requeue-ended")


def _with(reason: str, why: str) -> str:
    return reason if not why or reason.endswith(why) else f"{reason}; {why}"

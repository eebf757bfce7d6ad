"""All preemptions on their way: beginning what a plan asks for, and one step of each a cycle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.config import PreemptionSettings
from slurm_soda.daemon.preemption import (
    LEAVING,
    OVER,
    PHASE_AFTER,
    Phase,
    Preempting,
    Send,
    Step,
    Surroundings,
    next_step,
)
from slurm_soda.daemon.store.book import JobBook
from slurm_soda.daemon.store.ledger import Outcome
from slurm_soda.policies.plan import Plan
from slurm_soda.slurm_ext import actuator
from slurm_soda.slurm_ext.actuator import ENDED_TOO, Change
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.snapshot import preemptible

RETRY_AFTER_S = 2.0
"""Pause after Slurm refused a step."""


@dataclass(frozen=True, slots=True)
class Urge:
    """One step to send."""

    preempting: Preempting
    send: Send
    change: Change


@dataclass(slots=True)
class Preemptions:
    """The preemptions that are not over, by job id: one a job."""

    settings: PreemptionSettings
    by_job: dict[int, Preempting] = field(default_factory=dict)
    _succeeded: list[int] = field(default_factory=list)

    @property
    def leaving(self) -> list[int]:
        """Jobs that were told to leave and may still run."""
        return [p.job_id for p in self.by_job.values() if p.phase in ("signalled", "requeued")]

    def advance(
        self, jobs: Mapping[int, JobRecord], plan: Plan | None, now_s: float, *, may_begin: bool
    ) -> tuple[list[Urge], list[Preempting]]:
        """One step of each: what to send, most advanced first, and those whose phase changed without sending.

        A phase is changed here at once; what is sent changes it only when Slurm took it (:meth:`note`).
        """
        starts = set() if plan is None else set(plan.starts.tolist())
        waiting = {job_id for job_id, job in jobs.items() if job.state == "PENDING"}
        urges: list[Urge] = []
        changed: list[Preempting] = []
        for preempting in self.by_job.values():
            job = jobs.get(preempting.job_id)
            around = Surroundings(
                now_s, may_begin, preempting.job_id in starts, waiting, self.settings.release_after_s
            )  # fmt: skip
            step = next_step(preempting, job, around)
            if step.phase != preempting.phase:
                self._count(preempting, step.phase)
                preempting.phase = step.phase
                preempting.reason += f"; {step.why}" if step.why else ""
                changed.append(preempting)
            if step.send is not None and job is not None and now_s >= preempting.retry_s:
                urges.append(Urge(preempting, step.send, _change(preempting, step, job)))
        urges.sort(key=lambda urge: ("start-now", "requeue-ended", "requeue", "signal").index(urge.send))
        return urges, changed

    def begin(self, plan: Plan, jobs: Mapping[int, JobRecord], book: JobBook, now_s: float) -> list[Urge]:
        """The plan's new preemptions, each with its first step; :meth:`adopt` those that the rails let through.

        A job that others already leave for gets no further victims until they have left.
        """
        served = {job_id for p in self.by_job.values() if _still_leaving(p, jobs) for job_id in p.for_jobs}
        begun: list[Urge] = []
        for wish in plan.preempts:
            job = jobs.get(wish.job_id)
            if job is None or job.state != "RUNNING" or not preemptible(job) or wish.job_id in self.by_job:
                continue
            if wish.for_jobs and served.issuperset(wish.for_jobs):
                continue
            preempting = Preempting(
                job_id=wish.job_id, submit_s=book.submit_s(wish.job_id), restart=job.restarts, phase="intended",
                created_s=now_s, deadline_s=now_s, for_jobs=wish.for_jobs, reason=wish.reason,
            )  # fmt: skip
            around = Surroundings(now_s, True, False, frozenset(), self.settings.release_after_s)
            step = next_step(preempting, job, around)
            if step.send is not None:
                begun.append(Urge(preempting, step.send, _change(preempting, step, job)))
        return begun

    def adopt(self, begun: Sequence[Preempting]) -> None:
        """Follow these from now on."""
        self.by_job |= {p.job_id: p for p in begun}

    def note(self, urge: Urge, outcome: Outcome, job: JobRecord, now_s: float) -> None:
        """Take in what became of a step that was sent."""
        preempting = urge.preempting
        if outcome.state == "failed":
            preempting.failures, preempting.retry_s = preempting.failures + 1, now_s + RETRY_AFTER_S
        if outcome.state != "done":
            return
        preempting.failures = 0
        self._count(preempting, PHASE_AFTER[urge.send])
        preempting.phase = PHASE_AFTER[urge.send]
        if urge.send == "signal":
            preempting.deadline_s = now_s + self.grace_s(job)

    def _count(self, preempting: Preempting, then: Phase) -> None:
        """A preemption counts once: when its job is seen back in the queue."""
        if then in ("released", "done") and preempting.phase != "released":
            self._succeeded.append(preempting.job_id)

    def take_succeeded(self) -> list[int]:
        """Jobs that were preempted since the last call; to be saved together with the phases."""
        taken, self._succeeded = self._succeeded, []
        return taken

    def grace_s(self, job: JobRecord) -> float:
        """How long a job gets to save its state."""
        asked = job.hints.checkpoint_grace_s
        return self.settings.default_grace_s if asked is None else min(float(asked), self.settings.max_grace_s)

    def drop_over(self) -> None:
        """Stop following those that are over."""
        self.by_job = {job_id: p for job_id, p in self.by_job.items() if p.phase not in OVER}


def _still_leaving(preempting: Preempting, jobs: Mapping[int, JobRecord]) -> bool:
    """Its places are on their way to be free."""
    job = jobs.get(preempting.job_id)
    present: Collection[str] = ("RUNNING", "SUSPENDED", "COMPLETING")
    return preempting.phase in LEAVING and job is not None and job.state in present


def _change(preempting: Preempting, step: Step, job: JobRecord) -> Change:
    reason = f"{preempting.reason}; {step.why}" if step.why else preempting.reason
    if step.send == "signal":
        return actuator.signal(job.job_id, job.hints.checkpoint_signal or "TERM", reason)
    if step.send == "start-now":
        return actuator.start_now(job.job_id, reason)
    return Change(job.job_id, "requeue", ENDED_TOO if step.send == "requeue-ended" else {}, {}, reason)

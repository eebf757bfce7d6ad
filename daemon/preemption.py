"""What to do next about one preemption: a pure function of its persisted phase and of what Slurm shows now.

SIGTERM needs one step, because ``scontrol requeue`` itself sends it, waits KillWait and kills: nothing can be lost between.
Any other checkpoint signal is sent first; the job then saves its state and leaves, or its grace ends, and it is requeued.
Slurm's restart count tells whether a requeue happened, so no crash of sodad or slurmctld can lose or double one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from slurm_soda.slurm_ext.actuator import RESTART_GAP_S
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.states import ENDED

Phase = Literal["intended", "signalled", "requeued", "released", "done", "lost"]
Send = Literal["signal", "requeue", "requeue-ended", "start-now"]

OVER: frozenset[str] = frozenset({"done", "lost"})
LEAVING: frozenset[str] = frozenset({"intended", "signalled", "requeued"})

PHASE_AFTER: dict[Send, Phase] = {
    "signal": "signalled",
    "requeue": "requeued",
    "requeue-ended": "requeued",
    "start-now": "released",
}
"""Phase once Slurm has taken what was sent."""

_CHECKPOINTED = frozenset({"FAILED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})
"""Ends that our own signal or requeue may have caused; CANCELLED and TIMEOUT are somebody's will, COMPLETED a success."""


@dataclass(slots=True)
class Preempting:
    """One preemption on its way, as the store keeps it; see :class:`slurm_soda.daemon.store.schema.Preemption`."""

    job_id: int
    submit_s: float
    restart: int
    """Restart count of the run that is preempted."""
    phase: Phase
    created_s: float
    deadline_s: float
    for_jobs: tuple[int, ...]
    reason: str
    pk: int = 0
    failures: int = 0
    """Refusals in a row, of this daemon's life."""
    retry_s: float = float("-inf")
    """No new attempt before this instant."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else the next step depends on."""

    now_s: float
    may_begin: bool
    """Sodad enforces: a preemption that has not begun may begin."""
    wanted: bool
    """The plan wants the preempted job started now."""
    waiting: Collection[int]
    """Jobs that wait in the queue."""
    release_after_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """What to record at once, and what to send to Slurm."""

    phase: Phase
    send: Send | None = None
    why: str = ""


MAX_FAILURES = 5

SLURM_TICK_S = 1.0
"""Slurm's times are whole seconds: an end in the second of our signal seems to lie before it."""


def next_step(preempting: Preempting, job: JobRecord | None, around: Surroundings) -> Step:
    """Decide the next step of one preemption that is not over.

    Args:
        preempting: its phase as persisted.
        job: the job as Slurm shows it now; ``None`` if Slurm no longer lists it.
        around: everything else.
    """
    if (why := _untraceable(preempting, job)) or job is None:
        return Step("lost", why=why)
    requeued = job.restarts > preempting.restart and job.state != "COMPLETING"
    if preempting.failures >= MAX_FAILURES:
        return Step("done" if requeued else "lost", why=f"Slurm refused {preempting.failures} times")
    if requeued:
        return _after_requeue(preempting, job, around)
    if job.state == "COMPLETING":
        return Step(preempting.phase)
    return _ended(preempting, job) if job.state in ENDED else _still_running(preempting, job, around)


def _untraceable(preempting: Preempting, job: JobRecord | None) -> str:
    """Why nothing can be said of the job any more; empty if it can."""
    if job is None:
        return "Slurm no longer lists the job"
    if job.restarts < preempting.restart or job.submit_s < preempting.submit_s:
        return "another job has this id now"
    if job.restarts == preempting.restart and job.state == "PENDING":
        return "the job waits again without a requeue"
    return ""


def _still_running(preempting: Preempting, job: JobRecord, around: Surroundings) -> Step:
    if preempting.phase == "intended":
        if not around.may_begin:
            return Step("lost", why="given up before anything was sent: sodad no longer enforces")
        return Step("intended", send="requeue" if _requeue_signals(job) else "signal")
    if preempting.phase == "signalled":
        if around.now_s < preempting.deadline_s:
            return Step("signalled")
        return Step("signalled", send="requeue", why="its grace is over")
    return Step("requeued", send="requeue", why="Slurm lost the requeue")


def _ended(preempting: Preempting, job: JobRecord) -> Step:
    """Ended in the very run that we preempt. With SIGTERM only a requeue that Slurm took can have ended it."""
    ours = preempting.phase in ("signalled", "requeued") or not _requeue_signals(job)
    if job.state in _CHECKPOINTED and ours and preempting.created_s - SLURM_TICK_S <= job.end_s:
        return Step(preempting.phase, send="requeue-ended", why=f"it saved its state and ended ({job.exit_code})")
    return Step("lost", why=f"the job ended by itself: {job.state}")


def _after_requeue(preempting: Preempting, job: JobRecord, around: Surroundings) -> Step:
    if job.state != "PENDING" or not is_leased(job, around.now_s):
        return Step("done")
    if around.now_s < job.submit_s + RESTART_GAP_S:  # a requeue moves the submit time to its own second
        return Step("released" if preempting.phase == "released" else "requeued")
    if preempting.phase == "released":
        return Step("released", send="start-now", why="Slurm lost the release")
    if why := _release_cause(preempting, job, around):
        return Step("requeued", send="start-now", why=why)
    return Step("requeued")


def _release_cause(preempting: Preempting, job: JobRecord, around: Surroundings) -> str:
    """Why the job competes again; empty while it must not take its GPUs back from the jobs it made way for."""
    if around.wanted:
        return "the plan starts it"
    if not around.may_begin:
        return "sodad no longer enforces"
    if not any(job_id in around.waiting for job_id in preempting.for_jobs):
        return "the jobs it made way for no longer wait"
    if around.now_s - job.submit_s >= around.release_after_s:
        return f"it made way for {around.release_after_s:g} s"
    return ""


def is_leased(job: JobRecord, now_s: float) -> bool:
    """Whether Slurm makes a requeued job wait (121 s); a hold or a dependency is not ours to end."""
    return job.reason == "BeginTime" or (job.eligible_s > now_s and not job.reason.startswith(("JobHeld", "Depend")))


def _requeue_signals(job: JobRecord) -> bool:
    """The requeue itself sends the checkpoint signal."""
    return job.hints.checkpoint_signal in (None, "TERM")

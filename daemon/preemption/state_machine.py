"""What to do next about one preemption: a pure function of its persisted phase and of what Slurm shows now.

SIGTERM needs one step, because ``scontrol requeue`` itself sends it, waits KillWait and kills: nothing can be lost between.
Any other checkpoint signal is sent first; the job then saves its state and leaves, or its grace ends, and it is requeued.
Slurm's restart count shows whether a requeue happened, so no crash of sodad or slurmctld can lose or double one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, get_args

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.preemption.successors import Successors
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.write.job_changes import MAX_REQUEUE_WAIT_S, MIN_RESTART_GAP_S

PreemptionPhase = Literal["intended", "signalled", "requeued", "released", "done", "lost"]
PreemptionCommand = Literal["signal", "requeue", "requeue-ended", "start-now"]

FINAL_PHASES: frozenset[str] = frozenset({"done", "lost"})
ACTIVE_PHASES: frozenset[str] = frozenset(get_args(PreemptionPhase)) - FINAL_PHASES
"""Of a preemption that is not over."""
LEAVING_PHASES: frozenset[str] = frozenset({"intended", "signalled", "requeued"})

PHASE_AFTER: dict[PreemptionCommand, PreemptionPhase] = {
    "signal": "signalled",
    "requeue": "requeued",
    "requeue-ended": "requeued",
    "start-now": "released",
}
"""Phase once Slurm has taken what was sent."""

_STATES_AFTER_CHECKPOINT = frozenset({"FAILED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})
"""Ends that our own signal or requeue may have caused; CANCELLED and TIMEOUT are somebody's will, COMPLETED a success."""


@dataclass(slots=True)
class ActivePreemption:
    """One preemption on its way, as the store keeps it; see
    :class:`slurm_soda.daemon.store.tables.scheduling.Preemption`.
    """

    job_id: int
    submit_s: float
    restart: int
    """Restart count of the run that is preempted."""
    phase: PreemptionPhase
    created_s: float
    """By the wall clock, which may have been set since."""
    deadline_s: float
    """When the grace ends: counted from the beginning, then from the signal, then from the requeue, which signals once more;
    after the release, when slurmctld has surely saved it. By the steady clock."""
    for_jobs: tuple[int, ...]
    reason: str
    pk: int = 0
    failures: int = 0
    """Refusals in a row, in this daemon epoch."""
    retry_s: float = float("-inf")
    """No new attempt before this instant of the steady clock."""
    forgotten_s: float = float("inf")
    """Since when, by the steady clock, Slurm shows the job running although it took the requeue; infinite if it does not."""
    created_steady_s: float = float("-inf")
    """:attr:`created_s` by the steady clock."""
    returned_s: float | None = None
    """When the job came back to the queue, by the steady clock; ``None`` before."""
    displaced: set[int] = field(default_factory=set)
    """Jobs of :attr:`for_jobs` that waited for its places since, and did not always fit: others had taken them."""
    successors: Successors = field(default_factory=Successors)
    """What :attr:`for_jobs` asked for when others began to leave for them."""
    vain_for: tuple[int, ...] = ()
    """Jobs of :attr:`for_jobs` that did not start, although they could have as far as anybody knows."""


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """What else the next step depends on."""

    at: Instant
    may_begin: bool
    """Sodad enforces: a preemption that has not begun may begin."""
    wanted: bool
    """The plan wants the preempted job started now."""
    waiting: Collection[int]
    """Jobs that could take its places: they wait, and nobody holds them."""
    release_after_s: float
    left: bool = True
    """The run that was preempted has certainly left its nodes; see :class:`.former_runs.FormerRuns`."""
    boot_s: float = math.inf
    """When slurmctld was started, in Unix seconds; infinite where that is not known: then no end is too late."""


@dataclass(frozen=True, slots=True)
class PreemptionDecision:
    """What to record at once, and what to send to Slurm."""

    phase: PreemptionPhase
    send: PreemptionCommand | None = None
    why: str = ""


MAX_FAILURES = 5
"""Refusals in a row after which a preemption that has begun is given up; one that has not is given up at the first."""

SLURM_SAVES_WITHIN_S = 10.0
"""A slurmctld that is killed forgets up to 5 s of changes (``SAVE_MAX_WAIT`` in its source); twice that, as it may be busy.

What it forgets of a release is not that the job was requeued, so the job would wait out Slurm's 121 s.
"""

NODES_REPORT_WITHIN_S = 10.0
"""A slurmctld that has just started asks its nodes for their jobs after 3 s (``MIN_CHECKIN_TIME`` in its source).

Until then it may show a job running that has left, and forget one that runs in its place. A second requeue would make it
start that one once more on the same node, which Slurm answers by draining the node and holding the job.
"""

SLURM_TICK_S = 1.0
"""Slurm's times are whole seconds: an end in the second of our signal seems to lie before it."""


MOST_CLOCK_DIFFERENCE_S = 10.0
"""So far sodad's clock may be behind slurmctld's, where they run on two machines."""


def decide_next_step(
    active_preemption: ActivePreemption, job: SlurmJob | None, context: PreemptionContext
) -> PreemptionDecision:
    """Decide the next step of one preemption that is not over.

    Args:
        active_preemption: its phase as persisted.
        job: the job as Slurm shows it now; ``None`` if Slurm no longer lists it.
        context: everything else.
    """
    if (why := _why_lost(active_preemption, job)) or job is None:
        return PreemptionDecision("lost", why=why)
    requeued = job.restarts > active_preemption.restart and job.state != "COMPLETING"
    if active_preemption.failures >= (1 if active_preemption.phase == "intended" else MAX_FAILURES):
        return PreemptionDecision(
            "done" if requeued else "lost", why=f"Slurm refused {active_preemption.failures} times"
        )
    if requeued:
        return _after_requeue(active_preemption, job, context)
    if job.state == "COMPLETING":
        return PreemptionDecision(active_preemption.phase)
    if job.state in ENDED_STATES:
        return _ended(active_preemption, job, context.at, context.boot_s)
    return _still_running(active_preemption, job, context)


def _why_lost(active_preemption: ActivePreemption, job: SlurmJob | None) -> str:
    """Why nothing can be said of the job any more; empty if it can."""
    if job is None:
        return "Slurm no longer lists the job"
    if job.restarts < active_preemption.restart or job.submit_s < active_preemption.submit_s:
        return "another job has this id now"
    if job.restarts == active_preemption.restart and job.state == "PENDING":
        return "the job waits again without a requeue"
    return ""


def _still_running(
    active_preemption: ActivePreemption, job: SlurmJob, context: PreemptionContext
) -> PreemptionDecision:
    if active_preemption.phase == "intended":
        if not context.may_begin:
            return PreemptionDecision("lost", why="given up before anything was sent: sodad no longer enforces")
        return PreemptionDecision("intended", send="requeue" if _requeue_sends_checkpoint_signal(job) else "signal")
    if active_preemption.phase == "signalled":
        if context.at.steady_s < active_preemption.deadline_s:
            return PreemptionDecision("signalled")
        return PreemptionDecision("signalled", send="requeue", why="its grace is over")
    return PreemptionDecision("requeued", send="requeue", why="Slurm lost the requeue")


def _ended(active_preemption: ActivePreemption, job: SlurmJob, at: Instant, boot_s: float) -> PreemptionDecision:
    """Ended in the very run that we preempt. With SIGTERM only a requeue that Slurm took can have ended it."""
    ours = active_preemption.phase in ("signalled", "requeued") or not _requeue_sends_checkpoint_signal(job)
    if job.state in _STATES_AFTER_CHECKPOINT and ours and _ended_in_time(active_preemption, job, at, boot_s):
        return PreemptionDecision(
            active_preemption.phase, send="requeue-ended", why=f"it saved its state and ended ({job.exit_code})"
        )
    return PreemptionDecision("lost", why=f"the job ended by itself: {job.state}")


def _ended_in_time(active_preemption: ActivePreemption, job: SlurmJob, at: Instant, boot_s: float) -> bool:
    """Whether our signal or requeue can have ended the run, by when it ended.

    What Slurm took came before the end, and an end that is seen soon after the grace was in time, whatever clocks say. For
    others Slurm's date decides: a job whose grace was over long before it ended ignored the signal. What ended while
    slurmctld was down, it dates later.
    """
    created_s, created_steady_s = active_preemption.created_s, active_preemption.created_steady_s
    # After the clock was set, Slurm's word on the end may be by another clock than ours on the beginning.
    by_both_clocks = (created_s, at.wall(created_steady_s))
    if active_preemption.phase == "intended" and job.end_s < min(by_both_clocks) - SLURM_TICK_S:
        return False
    noted_within_s = NODES_REPORT_WITHIN_S + MOST_CLOCK_DIFFERENCE_S
    if at.steady_s <= active_preemption.deadline_s + noted_within_s:
        return True
    grace_over_s = max(by_both_clocks) + (active_preemption.deadline_s - created_steady_s)
    return job.end_s <= max(grace_over_s, boot_s) + noted_within_s


def lacks_requeue(active_preemption: ActivePreemption, job: SlurmJob | None, at: Instant, boot_s: float) -> bool:
    """Whether the run that is preempted has saved its state and ended, so that nothing but its requeue is missing.

    A job that ended with status 0 may have done all its work: it never lacks one. ``boot_s`` is as in
    :class:`PreemptionContext`.
    """
    if job is None or _why_lost(active_preemption, job) or job.restarts != active_preemption.restart:
        return False
    return job.state in ENDED_STATES and _ended(active_preemption, job, at, boot_s).send == "requeue-ended"


def _after_requeue(
    active_preemption: ActivePreemption, job: SlurmJob, context: PreemptionContext
) -> PreemptionDecision:
    owners_time = job.eligible_s - job.submit_s > MAX_REQUEUE_WAIT_S
    if job.state != "PENDING" or owners_time:
        return PreemptionDecision("done", why="its owner has said when it may start" if owners_time else "")
    if not job.waits_for_begin_time(context.at.now_s):
        unsaved = active_preemption.phase == "released" and context.at.steady_s < active_preemption.deadline_s
        return PreemptionDecision("released" if unsaved else "done")
    if not context.left or _left_just_now(job, context.at.now_s):
        # Where its node went down nobody knows what still runs there: Slurm's own wait goes on.
        counts = context.left and active_preemption.phase != "released"
        return PreemptionDecision("requeued" if counts else active_preemption.phase)
    if active_preemption.phase == "released":
        return PreemptionDecision("released", send="start-now", why="Slurm lost the release")
    if why := _release_cause(active_preemption, job, context):
        return PreemptionDecision("requeued", send="start-now", why=why)
    return PreemptionDecision("requeued")


def _release_cause(active_preemption: ActivePreemption, job: SlurmJob, context: PreemptionContext) -> str:
    """Why the job competes again; empty while it must not take its GPUs back from the jobs it made way for.

    One that left for nobody, such as a guest that was parted from its host, starts again when the plan wants it. While a
    request still names the GPUs of a host, its start would be beside that host again: Slurm's own wait goes on until the
    request is restored.
    """
    for_jobs = active_preemption.for_jobs
    if job.shared_gpus:
        return ""
    if context.wanted:
        return "the plan starts it"
    if not context.may_begin:
        return "sodad no longer enforces"
    if for_jobs and not any(job_id in context.waiting for job_id in for_jobs):
        return "the jobs it made way for no longer wait for its places"
    if has_made_way(active_preemption, job, context):
        return f"it {'made way' if for_jobs else 'has waited'} for {context.release_after_s:g} s"
    return ""


def is_back(active_preemption: ActivePreemption, job: SlurmJob | None) -> bool:
    """Whether the job waits in the queue again after the requeue."""
    return job is not None and job.restarts > active_preemption.restart and job.state == "PENDING"


def returned_s(active_preemption: ActivePreemption, job: SlurmJob, context: PreemptionContext) -> float:
    """When a job that :func:`is_back` came back, by the steady clock."""
    if active_preemption.returned_s is not None:
        return active_preemption.returned_s
    return context.at.steady_since(job.submit_s, context.release_after_s)


def has_made_way(active_preemption: ActivePreemption, job: SlurmJob, context: PreemptionContext) -> bool:
    """Whether a job that :func:`is_back` has left its GPUs to others for as long as it should."""
    return context.at.steady_s - returned_s(active_preemption, job, context) >= context.release_after_s


def _left_just_now(job: SlurmJob, now_s: float) -> bool:
    """Whether this is still the second of the requeue, to which Slurm moves the submit time.

    A submit time that lies ahead by more than machines differ is of before the clock was set back.
    """
    return -MOST_CLOCK_DIFFERENCE_S <= now_s - job.submit_s < MIN_RESTART_GAP_S


def _requeue_sends_checkpoint_signal(job: SlurmJob) -> bool:
    """The requeue itself sends the checkpoint signal."""
    return job.hints.checkpoint_signal in (None, "TERM")

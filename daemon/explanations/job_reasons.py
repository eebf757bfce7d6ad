"""Why a job is where it is, in sentences; from the store's rows and, where Slurm was asked, its own word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_soda.daemon import readable
from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.explanations.cpu_fit_reasons import explain_cores
from slurm_soda.daemon.explanations.progress_reasons import explain_progress
from slurm_soda.daemon.explanations.run_time_reasons import expected_run_time, explain_run_time
from slurm_soda.daemon.explanations.share_reasons import list_fault_reasons, list_share_reasons
from slurm_soda.daemon.explanations.slurm_reasons import list_last_seen_reasons, list_slurm_reasons
from slurm_soda.daemon.explanations.start_reasons import explain_expected_start
from slurm_soda.daemon.preemption.state_machine import LEAVING_PHASES
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun, Preemption
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.explanation.explanation import Explanation
from slurm_soda.policies.explanation.job_position import explain_position
from slurm_soda.policies.plan import JobNote, JobVerdict
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import NEVER, UNLIMITED_S, JobState, JobView, UnknownNodes
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, policy_state


@dataclass(frozen=True, slots=True)
class JobFacts:
    """All that is known of one job; Slurm forgets ended ones, the store learns of new ones a moment late."""

    view: JobDetailView
    record: SlurmJob | None
    now_s: float
    asked_slurm: bool = True
    """Slurm was asked just now; without that :attr:`record` is ``None`` and says nothing."""
    hints: Sequence[str] = ()
    """How much others seem to slow it down, in sentences, if it tells no progress."""

    @property
    def run_time(self) -> Explanation:
        """Of its run time."""
        return explain_run_time(expected_run_time(self.view.run_time, self.view.runs, self.until_s), ended=self.ended)

    @property
    def start(self) -> Explanation:
        """Of its expected start."""
        waits = not self.ended and (self.record is None or self.record.state == "PENDING")
        return explain_expected_start(self.view, self.now_s) if waits else Explanation()

    @property
    def progress(self) -> Explanation:
        """Of what it tells itself."""
        told = explain_progress(self.view, self.now_s, ended=self.ended)
        return told if self.view.progress else Explanation(tuple(self.hints))

    @property
    def ended(self) -> bool:
        """Slurm or the store says so: the store learns of an end a moment late, Slurm forgets the job."""
        listed = self.record is not None and self.record.state in ENDED_STATES
        return listed or (self.view.job is not None and self.view.job.end_s is not None)

    @property
    def until_s(self) -> float:
        """Up to when its last run counts: its end, or now."""
        end_s = self.record.end_s if self.record is not None and self.ended else math.nan
        return end_s if math.isfinite(end_s) else self.now_s

    @property
    def cores(self) -> Explanation:
        """Of its CPU cores."""
        return explain_cores(self.view, self.record)


def list_job_reasons(known: JobFacts) -> Iterator[str]:
    """Why a job is where it is, most important first."""
    view, job, record = known.view, known.view.job, known.record
    state = record.state if record is not None else (job.state if job is not None else "")
    if state in ENDED_STATES:
        yield from _ended(known, state)
        return
    if known.asked_slurm:
        yield from list_slurm_reasons(record)
    elif job is not None:
        yield from list_last_seen_reasons(job, view.runs)
    if job is None:
        yield "sodad has not seen it yet; it looks every few seconds while it runs."
        return
    yield from _policy_reasons(job, known)
    yield from known.start.sentences
    yield from list_share_reasons(view, record, known.now_s)
    yield from list_fault_reasons(job.job_id, view.faults)
    yield from _preemption_reasons(view.preemptions)
    yield from _vain_reasons(known)
    yield from _service_reasons(job, view.runs, known.now_s)
    yield from known.progress.sentences
    yield from known.run_time.sentences
    yield from known.cores.sentences


def _ended(known: JobFacts, state: str) -> Iterator[str]:
    job, record = known.view.job, known.record
    ends = (job.end_s if job is not None else None, record.end_s if record is not None else None)
    end_s = next((end_s for end_s in ends if end_s is not None and math.isfinite(end_s)), None)
    yield f"It ended as {state} at {readable.format_instant(end_s)}."
    if job is not None:
        times = f"ran {_times(len(known.view.runs))}" if known.view.runs else "never ran"
        gave = f", gave way {_times(job.preemptions)}" if job.preemptions else ""
        shows = f"`sodactl history --job {job.job_id}` (root and SlurmUser, on the controller)"
        yield f"It {times}{gave}; {shows} shows what it used."
        yield from known.progress.sentences
        yield from known.run_time.sentences
        yield from list_share_reasons(known.view, None, known.now_s)
        yield from list_fault_reasons(job.job_id, known.view.faults)
    if known.view.preemptions:
        yield from _ended_while_preempted(known, known.view.preemptions[-1], state)


def _ended_while_preempted(known: JobFacts, last: Preemption, state: str) -> Iterator[str]:
    """What to do about a job that was asked for its checkpoint and was not requeued in that run."""
    record, runs = known.record, known.view.runs
    run = record.restarts if record is not None else runs[-1].restart if runs else last.restart
    signalled = any(action.kind == "signal" and action.state != "failed" for action in known.view.actions)
    if not signalled or run != last.restart or last.phase not in (*LEAVING_PHASES, "lost"):
        return
    if last.phase in LEAVING_PHASES and known.view.head.daemon_alive and state not in ("COMPLETED", "CANCELLED"):
        yield "It saved its state to give way; sodad requeues it."
        return
    again = (
        f"`scontrol requeue {record.address}`, while Slurm lists it (MinJobAge)"
        if record is not None
        else "submit it again"
    )
    yield f"It ended after it was asked to save its state, and was not requeued. If it had not done its work: {again}."


def _policy_reasons(job: Job, known: JobFacts) -> Iterator[str]:
    note, mode = job.note, known.view.head.mode
    if mode == "observe":
        yield "sodad only observes: the order is Slurm's own. `sodactl mode advise` shows what the policy would do."
        return
    if not note:
        yield "The policy has not judged it yet; it will at the next cycle of sodad."
        return
    if not_in_scope := note.get("not_in_scope"):
        yield f"It is {not_in_scope}: sodad plans for it and changes nothing of it ([scope] of soda.toml)."
    if mode == "advise":
        yield "sodad only advises: what follows is what the policy wants, and Slurm is not told."
    explanation = explain_by_policy(known)
    if not explanation.sentences:
        yield f"The policy says: {note.get('verdict')}."
        yield from _sharing_reasons(note, mode)
        return
    yield from explanation.sentences
    yield from _sharing_reasons(note, mode)
    before = known.view.waiting_before
    if before:
        others, gpus = (
            readable.format_count(before, "waiting job"),
            readable.format_count(known.view.gpus_before, "GPU"),
        )
        yield f"Before it in line: {others}, for {gpus}."


def _sharing_reasons(note: Mapping[str, Any], mode: str) -> Iterator[str]:
    """Where the policy lets it join others, or why it can be nobody's guest."""
    shares = note.get("shares")
    if not isinstance(shares, dict):
        return
    if "stays" in shares:
        yield f"A bound on slowdown does not hold: {shares['stays']}."
        return
    if "no_guest" in shares:
        yield f"It cannot join running jobs as their guest: {shares['no_guest']}."
        return
    if "unguarded" in shares:
        yield f"It cannot be a guest on some nodes with jobs that it could join: {shares['unguarded']}."
        return
    gpus = "; ".join(f"GPU {', '.join(map(str, indices))} of {node}" for node, indices in shares["gpus"].items())
    others = ", ".join(map(str, shares["with"]))
    word = "shall" if mode == "enforce" else "would"
    yield f"By the policy it {word} share GPUs now: {gpus}, with job {others}."
    if "refused" in shares:
        yield f"It does not, since that cannot be: {shares['refused']}."


def explain_by_policy(known: JobFacts) -> Explanation:
    """The policy's own words and numbers; empty where the store holds no verdict that this version knows."""
    job, head = known.view.job, known.view.head
    if job is None or head.mode == "observe" or not isinstance(job.note.get("position"), int):
        return Explanation()
    verdict = JobVerdict.__members__.get(str(job.note.get("verdict")).upper())
    if verdict is None:
        return Explanation()
    try:
        policy = make_policy(head.policy, head.parameters)
    except PolicyError:
        return Explanation()
    score = job.note.get("score")
    note = JobNote(
        job_id=job.job_id,
        verdict=verdict,
        queue=job.note.get("queue", 0),
        score=NEVER if score is None else score,
        position=job.note["position"],
        score_name=job.note.get("score_name", "score"),
        behind=job.note.get("behind", 0),
        unknown_nodes=UnknownNodes.__members__.get(str(job.note.get("unknown_nodes")).upper(), UnknownNodes.KNOWN),
        overdue=bool(job.note.get("overdue")),
        price_s=job.note.get("price_s", NEVER),
    )
    return explain_position(note, _view(job, known), policy)


def _view(job: Job, known: JobFacts) -> JobView:
    """The job as the policy's snapshot had it, as far as the store knows."""
    hints = codec.hints_from_dict(job.hints)
    runs = known.view.runs
    present = runs[-1] if runs and runs[-1].end_s is None else None
    return JobView(
        job_id=job.job_id,
        state=_policy_state(job),
        user=job.user,
        partition=job.partition,
        submit_s=job.submit_s,
        first_start_s=_or_never(job.first_start_s),
        start_s=present.start_s if present else NEVER,
        time_limit_s=UNLIMITED_S if job.time_limit_s is None else job.time_limit_s,
        gpus=job.gpus,
        nodes=job.nodes,
        gpus_per_node=0,
        cpus=job.cpus,
        memory_mib=0,
        priority=known.record.priority if known.record else 0,
        executed_s=job.executed_s,
        attained_gpu_s=compute_attained_gpu_s(job, runs, known.now_s),
        waited_s=max(known.now_s - (job.waited_since_s or job.submit_s), 0.0) if present is None else 0.0,
        preemptible=hints.preemptible,
        preemptions=job.preemptions,
        remaining_s=NEVER,
    )


def _policy_state(job: Job) -> JobState:
    try:
        return policy_state(job.state, job.reason)
    except KeyError:
        return JobState.COMPLETING  # ended, or of a newer Slurm: nothing to decide


def _or_never(value: float | None) -> float:
    return NEVER if value is None else value


def _preemption_reasons(preemptions: Sequence[Preemption]) -> Iterator[str]:
    for entry in preemptions:
        if entry.phase == "signalled":
            until = readable.format_instant(entry.deadline_s)
            yield f"It was asked to save its state and has until {until}: {entry.reason}."
        elif entry.phase in ("intended", "requeued", "released"):
            jobs = ", ".join(map(str, entry.for_jobs)) or "others"
            yield f"It gives way to {jobs} ({entry.phase}): {entry.reason}."


def _vain_reasons(known: JobFacts) -> Iterator[str]:
    """Why no one is preempted for it, and for whom it was preempted in vain."""
    record = known.record
    for entry in known.view.vain_preemptions:
        alike = record is None or (record.gpus_per_node, record.gpu_type) == (entry.gpus_per_node, entry.gpu_type)
        waits = record is None or record.state == "PENDING"
        if alike and waits and known.now_s < entry.until_s:
            own = known.view.job is not None and entry.job_id == known.view.job.job_id
            who = "It" if own else f"Job {entry.job_id}"
            yield (
                f"{who} did not start on GPUs that others had left for it ({_times(entry.times)} in a row), so until"
                f" {readable.format_instant(entry.until_s)} no one is preempted for its owner's jobs with this request."
            )
    for made_way in known.view.preemptions[::-1]:
        if made_way.vain_for:
            jobs = "job" if len(made_way.vain_for) == 1 else "jobs"
            yield (
                f"It gave way at {readable.format_instant(made_way.created_s)} to {jobs}"
                f" {', '.join(map(str, made_way.vain_for))} in vain: no start followed."
            )
            break


def _service_reasons(job: Job, runs: Sequence[JobRun], now_s: float) -> Iterator[str]:
    if runs:
        served = compute_attained_gpu_s(job, runs, now_s)
        first = readable.format_instant(job.first_start_s)
        yield f"It ran {_times(len(runs))}, first at {first}; attained service {served:,.0f} GPU s."
    if job.inherited_s and job.promoted_s is None:
        inherited = job.gpus * job.inherited_s
        yield f"It inherited {inherited:,.0f} GPU s of attained service from a cancelled job of the same name and GPUs."
    if job.preemptions:
        yield f"It gave way {_times(job.preemptions)}."
    if job.gpus and "checkpoint" not in job.hints:
        yield "It is never preempted: it names no --soda-checkpoint signal."


def compute_attained_gpu_s(job: Job, runs: Sequence[JobRun], now_s: float) -> float:
    """GPUs x run time since the last promotion, the present run included (Tiresias, Section 3.2.2)."""
    present = runs[-1] if runs and runs[-1].end_s is None and job.end_s is None else None
    running_s = 0.0 if present is None else max(now_s - max(present.start_s, present.promoted_s or 0.0), 0.0)
    return job.gpus * (job.executed_s + running_s)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"

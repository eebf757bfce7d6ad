"""Why a job is where it is, in sentences; from the store's rows and Slurm's own word, both as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_soda.daemon.store.schema import Job, Preemption, Run
from slurm_soda.policies.plan import Verdict
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.states import ENDED
from slurm_soda.sodactl import output

_SENTENCES: Mapping[Verdict, str] = {
    Verdict.WAIT: "The policy lets it wait: it does not fit beside the jobs before it.",
    Verdict.START: "The policy wants it to start now: it fits, and Slurm is to start it next.",
    Verdict.RUN: "The policy lets it run on.",
    Verdict.PREEMPT: "The policy wants it to give way: jobs before it need its GPUs.",
    Verdict.PROTECTED: (
        "Jobs before it want its GPUs, but it runs on: it cannot checkpoint, or its minimum run time is not over."
    ),
    Verdict.WAIT_FOR_PREEMPTION: "It starts as soon as the jobs that give way to it have left their GPUs.",
    Verdict.BLOCKED: "Slurm does not let it start yet, whatever the policy wants.",
    Verdict.LEAVING: "It is leaving its resources; there is nothing to decide.",
    Verdict.TOO_LARGE: "No set of nodes of its partition could ever hold it: ask for fewer GPUs, nodes or CPUs.",
}

_BLOCKS: Mapping[str, str] = {
    "JobHeldUser": "Its user holds it; `scontrol release {job}` lets it go.",
    "JobHeldAdmin": "An admin holds it; only an admin can release it.",
    "Dependency": "It waits for other jobs: {dependency}.",
    "DependencyNeverSatisfied": "It waits for jobs that will never fulfil its dependency: {dependency}. Cancel it.",
    "BeginTime": "Its begin time has not come.",
    "PartitionDown": "Its partition is down.",
    "PartitionInactive": "Its partition is inactive.",
    "PartitionNodeLimit": "It asks for more nodes than its partition allows.",
    "PartitionTimeLimit": "Its time limit is longer than its partition allows.",
    "ReqNodeNotAvail": "Nodes that it needs are down, drained or reserved.",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A job among the others."""

    waiting_before: int
    """Waiting jobs with a smaller position."""
    gpus_before: int
    ranked: int
    """Jobs that have a position."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known of one job; Slurm forgets ended ones, the store learns of new ones a moment late."""

    job: Job | None
    record: JobRecord | None
    runs: Sequence[Run]
    preemptions: Sequence[Preemption]
    standing: Standing
    mode: str
    policy: str
    now_s: float


def sentences(known: Known) -> Iterator[str]:
    """What to tell a person, most important first."""
    state = known.record.state if known.record is not None else (known.job.state if known.job is not None else "")
    if state in ENDED:
        yield from _ended(known, state)
        return
    yield from _slurms_word(known.record)
    if known.job is None:
        yield "sodad has not seen it yet; it looks every few seconds while it runs."
        return
    yield from _policys_word(known.job, known)
    yield from _preempting(known)
    yield from _service(known.job, known.runs, known.now_s)


def _ended(known: Known, state: str) -> Iterator[str]:
    end_s = known.job.end_s if known.job is not None else known.record.end_s if known.record is not None else None
    yield f"It ended as {state} at {output.instant(end_s)}."
    if known.job is not None:
        times = f"ran {_times(len(known.runs))}" if known.runs else "never ran"
        gave = f", gave way {_times(known.job.preemptions)}" if known.job.preemptions else ""
        yield f"It {times}{gave}; `sodactl history --job {known.job.job_id}` shows what it used."


def _slurms_word(record: JobRecord | None) -> Iterator[str]:
    if record is None:
        yield "Slurm does not list it now; what follows is what sodad last saw."
        return
    if record.state != "PENDING":
        where = f" on {record.node_names}" if record.node_names else ""
        yield f"Slurm: {record.state}{where} since {output.instant(record.start_s)}."
        return
    head = record.reason.split(",", 1)[0]
    yield f"Slurm: PENDING, reason {record.reason or 'none'}, priority {record.priority}."
    if head in _BLOCKS:
        yield _BLOCKS[head].format(job=record.job_id, dependency=record.dependency or "unknown")


def _policys_word(job: Job, known: Known) -> Iterator[str]:
    note = job.note
    if known.mode == "observe":
        yield "sodad only observes: the order is Slurm's own. `sodactl mode advise` shows what the policy would do."
    if not note:
        if known.mode != "observe":
            yield "The policy has not judged it yet; it will at the next cycle of sodad."
        return
    if known.mode == "advise":
        yield "sodad only advises: what follows is what the policy wants, and Slurm is not told."
    verdict = _verdict(note.get("verdict"))
    yield _SENTENCES[verdict] if verdict is not None else f"The policy says: {note.get('verdict')}."
    yield from _place(note, known)


def _verdict(name: Any) -> Verdict | None:
    """The store keeps names in small letters; one that a newer sodad wrote is unknown."""
    return Verdict.__members__.get(str(name).upper())


def _place(note: Mapping[str, Any], known: Known) -> Iterator[str]:
    position = note.get("position")
    if not isinstance(position, int) or position < 0:
        return
    standing = known.standing
    line = f"Place {position + 1} of {standing.ranked} in the order of {known.policy}, queue {note.get('queue', 0)}"
    if standing.waiting_before:
        others = "1 waiting job" if standing.waiting_before == 1 else f"{standing.waiting_before} waiting jobs"
        line += f"; {others} before it, for {standing.gpus_before} GPUs"
    yield f"{line}."
    score = note.get("score")
    if isinstance(score, int | float) and note.get("score_name"):
        yield f"Inside a queue the policy sorts by {note['score_name']}, smaller first; here it is {score:,.6g}."


def _preempting(known: Known) -> Iterator[str]:
    for entry in known.preemptions:
        if entry.phase == "signalled":
            yield f"It was asked to save its state and has until {output.instant(entry.deadline_s)}: {entry.reason}."
        elif entry.phase in ("intended", "requeued", "released"):
            jobs = ", ".join(map(str, entry.for_jobs)) or "others"
            yield f"It gives way to {jobs} ({entry.phase}): {entry.reason}."


def _service(job: Job, runs: Sequence[Run], now_s: float) -> Iterator[str]:
    if runs:
        served = attained_gpu_s(job, runs, now_s)
        first = output.instant(job.first_start_s)
        yield f"It ran {_times(len(runs))}, first at {first}; attained service {served:,.0f} GPU s."
    if job.preemptions:
        yield f"It gave way {_times(job.preemptions)}."
    if job.gpus and "checkpoint" not in job.hints:
        yield "It is never preempted: it names no --soda-checkpoint signal."


def attained_gpu_s(job: Job, runs: Sequence[Run], now_s: float) -> float:
    """GPUs x run time since the last promotion, the present run included (Tiresias, Section 3.2.2)."""
    present = runs[-1] if runs and runs[-1].end_s is None and job.end_s is None else None
    running_s = 0.0 if present is None else max(now_s - max(present.start_s, present.promoted_s or 0.0), 0.0)
    return job.gpus * (job.executed_s + running_s)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"

"""Why a job waits by Slurm's own word, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slurm_soda.daemon import readable
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.slurm_ext.client import SlurmJob

_SLURM_REASON_TEXTS: Mapping[str, str] = {
    "JobHeldUser": "Its user holds it; `scontrol release {job}` lets it go.",
    "JobHeldAdmin": "An admin holds it; only an admin can release it.",
    "Dependency": "It waits for other jobs: {dependency}.",
    "DependencyNeverSatisfied": "It waits for jobs that will never fulfil its dependency: {dependency}. Cancel it.",
    "BeginTime": "Its begin time has not come.",
    "PartitionDown": "Its partition is down.",
    "PartitionInactive": "Its partition is inactive.",
    "PartitionNodeLimit": "It asks for more nodes than its partition allows.",
    "PartitionTimeLimit": "Its time limit is longer than its partition allows.",
    "launch failed requeued held": "Slurm could not start it and holds it. `sodactl doctor` says more; then an admin runs "
    "`scontrol release {job}`.",
    "ReqNodeNotAvail": "Nodes that it needs are down, drained or reserved.",
}


def list_slurm_reasons(record: SlurmJob | None) -> Iterator[str]:
    """What Slurm says now; ``None``: it does not list the job."""
    if record is None:
        yield "Slurm does not list it now; what follows is what sodad last saw."
        return
    if record.state != "PENDING":
        where = f" on {record.node_names}" if record.node_names else ""
        yield f"Slurm: {record.state}{where} since {readable.format_instant(record.start_s)}."
        return
    yield f"Slurm: PENDING, reason {record.reason or 'none'}, priority {record.priority}."
    if text := _text_of(record.reason):
        yield text.format(job=record.job_id, dependency=record.dependency or "unknown")


def list_last_seen_reasons(job: Job, runs: Sequence[JobRun]) -> Iterator[str]:
    """What Slurm said when sodad looked last."""
    seen = f"when sodad looked last, at {readable.format_instant(job.last_seen_s)}"
    if job.state != "PENDING":
        run = runs[-1] if runs else None
        where = f" on {run.node_names}" if run is not None and run.node_names else ""
        since = "" if run is None else f" since {readable.format_instant(run.start_s)}"
        yield f"Slurm: {job.state}{where}{since}, {seen}."
        return
    yield f"Slurm: PENDING, reason {job.reason or 'none'}, {seen}."
    if text := _text_of(job.reason):
        yield text.format(job=job.job_id, dependency="`scontrol show job` names them")


def _text_of(reason: str) -> str | None:
    return _SLURM_REASON_TEXTS.get(reason.split(",", 1)[0].replace("_", " "))

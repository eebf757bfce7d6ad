"""What finished jobs used and how long they took: accounting's figures where Slurm knows them, the agents' elsewhere.

Times of one job: ``jct_s`` (submission to end) = ``run_s`` (all runs) + ``queue_s`` (everything else, the waits after
preemptions too).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.queries import belongs_to
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun


@dataclass(frozen=True, slots=True)
class JobUsageTotals:
    """What a job used over all its runs and nodes; ``None`` where nobody knows.

    Each ``*_source`` is ``accounting`` or ``agent``.
    """

    gpu_util_ratio: float | None = None
    """Mean utilisation of the job's GPUs while it ran, 0 to 1."""
    gpu_memory_peak_mib: float | None = None
    """Largest over the runs of the sum over nodes of each node's peak."""
    cpu_s: float | None = None
    memory_peak_mib: float | None = None
    """Largest on one node, which is what Slurm's MaxRSS means for a job of one task a node."""
    gpu_source: str | None = None
    cpu_source: str | None = None
    memory_source: str | None = None


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """One line of ``sodactl history``; its keys are the keys of ``--json``."""

    job_id: int
    user: str
    account: str
    partition: str
    name: str
    state: str
    exit_code: str
    submit_s: float
    start_s: float | None
    """Start of the first run."""
    last_start_s: float | None
    end_s: float
    queue_s: float
    run_s: float
    jct_s: float
    first_wait_s: float
    """Submission to the first start (or to the end, for a job that never ran)."""
    gpus: int
    nodes: int
    cpus: int
    gpu_util_ratio: float | None
    gpu_memory_peak_mib: float | None
    cpu_s: float | None
    memory_peak_mib: float | None
    sources: Mapping[str, str | None]
    runs: int
    preemptions: int
    hints: Mapping[str, str] = field(default_factory=dict)


def finished_jobs(
    session: Session,
    *,
    job_id: int | None = None,
    user: str | None = None,
    since_s: float | None = None,
    limit: int = 0,
) -> list[FinishedJob]:
    """Finished jobs by end time, oldest first; ``limit`` keeps the newest so many, 0 keeps all."""
    query = select(Job).where(Job.end_s.is_not(None)).order_by(Job.end_s.desc(), Job.job_id.desc())
    if job_id is not None:
        query = query.where(Job.job_id == job_id)
    if user is not None:
        query = query.where(Job.user == user)
    if since_s is not None:
        query = query.where(Job.end_s >= since_s)
    if limit:
        query = query.limit(limit)
    jobs = list(reversed(session.scalars(query).all()))
    runs, usage = _runs(session, jobs), usage_by_job(session, jobs)
    return [_finished(job, runs[job.id], usage[job.job_id]) for job in jobs]


def job_usage_totals(job: Job, usage: Iterable[JobNodeUsage]) -> JobUsageTotals:
    """What a job used: Slurm's accounting first, else the agents' records that belong to it by their time."""
    own = [record for record in usage if belongs_to(record.first_s, job)]
    seen = _totals_of_agents(own)
    return JobUsageTotals(
        gpu_util_ratio=seen.gpu_util_ratio,
        gpu_memory_peak_mib=seen.gpu_memory_peak_mib,
        cpu_s=seen.cpu_s if job.cpu_s is None else job.cpu_s,
        memory_peak_mib=seen.memory_peak_mib if job.memory_peak_mib is None else job.memory_peak_mib,
        gpu_source=seen.gpu_source,
        cpu_source=seen.cpu_source if job.cpu_s is None else "accounting",
        memory_source=seen.memory_source if job.memory_peak_mib is None else "accounting",
    )


def _totals_of_agents(records: Sequence[JobNodeUsage]) -> JobUsageTotals:
    if not records:
        return JobUsageTotals()
    by_run_node: dict[tuple[int, str], list[JobNodeUsage]] = defaultdict(list)
    for record in records:
        by_run_node[record.restart, record.node].append(record)
    memory_by_run: dict[int, float] = defaultdict(float)
    cpu_s = 0.0
    for (restart, _node), parts in by_run_node.items():
        memory_by_run[restart] += max(part.gpu_memory_peak_mib for part in parts)
        # The agent reads a counter of the whole run, so a second record of one run holds the first one's seconds too.
        cpu_s += max(part.cpu_s for part in parts)
    with_gpu = [record for record in records if record.gpu_count > 0]
    return JobUsageTotals(
        gpu_util_ratio=_mean_utilisation(with_gpu),
        gpu_memory_peak_mib=max(memory_by_run.values()) if with_gpu else None,
        cpu_s=cpu_s,
        memory_peak_mib=max(record.memory_peak_mib for record in records),
        gpu_source="agent" if with_gpu else None,
        cpu_source="agent",
        memory_source="agent",
    )


def _mean_utilisation(records: Sequence[JobNodeUsage]) -> float | None:
    # A run seen in one sample only has no duration, but still says something.
    weights = [record.gpu_count * max(record.last_s - record.first_s, 1e-3) for record in records]
    total = sum(weights)
    if not total:
        return None
    return sum(record.gpu_util_ratio * weight for record, weight in zip(records, weights, strict=True)) / total


def _finished(job: Job, runs: Sequence[JobRun], usage: Sequence[JobNodeUsage]) -> FinishedJob:
    if job.end_s is None:
        raise ValueError(f"job {job.job_id} has not ended")
    run_s = sum(max((job.end_s if run.end_s is None else run.end_s) - run.start_s, 0.0) for run in runs)
    jct_s = max(job.end_s - job.submit_s, 0.0)
    first_s = runs[0].start_s if runs else job.first_start_s
    use = job_usage_totals(job, usage)
    return FinishedJob(
        job_id=job.job_id,
        user=job.user,
        account=job.account,
        partition=job.partition,
        name=job.name,
        state=job.state,
        exit_code=job.exit_code,
        submit_s=job.submit_s,
        start_s=first_s,
        last_start_s=runs[-1].start_s if runs else job.first_start_s,
        end_s=job.end_s,
        queue_s=max(jct_s - run_s, 0.0),
        run_s=run_s,
        jct_s=jct_s,
        first_wait_s=max((job.end_s if first_s is None else first_s) - job.submit_s, 0.0),
        gpus=job.gpus,
        nodes=job.nodes,
        cpus=job.cpus,
        gpu_util_ratio=use.gpu_util_ratio,
        gpu_memory_peak_mib=use.gpu_memory_peak_mib,
        cpu_s=use.cpu_s,
        memory_peak_mib=use.memory_peak_mib,
        sources={"gpu": use.gpu_source, "cpu_s": use.cpu_source, "memory_peak_mib": use.memory_source},
        runs=len(runs),
        preemptions=job.preemptions,
        hints=dict(job.hints),
    )


def _runs(session: Session, jobs: Sequence[Job]) -> dict[int, list[JobRun]]:
    found: dict[int, list[JobRun]] = defaultdict(list)
    for keys in split_list([job.id for job in jobs]):
        for run in session.scalars(select(JobRun).where(JobRun.job_pk.in_(keys)).order_by(JobRun.restart)):
            found[run.job_pk].append(run)
    return found


def usage_by_job(session: Session, jobs: Sequence[Job]) -> dict[int, list[JobNodeUsage]]:
    """What agents told of these jobs, by job id; a job of an earlier time may have had the same id."""
    found: dict[int, list[JobNodeUsage]] = defaultdict(list)
    for job_ids in split_list(sorted({job.job_id for job in jobs})):
        for record in session.scalars(
            select(JobNodeUsage)
            .where(JobNodeUsage.job_id.in_(job_ids))
            .order_by(JobNodeUsage.restart, JobNodeUsage.first_s)
        ):
            found[record.job_id].append(record)
    return found

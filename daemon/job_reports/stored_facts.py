"""The rows of the store that reports are made of, read for many jobs at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import fits_of
from slurm_soda.daemon.store.gpu_uses import gpu_uses_by_job
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.jobs.finished_jobs import usage_by_job
from slurm_soda.daemon.store.progress import paces_of, progress_of
from slurm_soda.daemon.store.queries import belongs_to
from slurm_soda.daemon.store.shares import shares_of
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, Job, JobNodeUsage, JobRun, NodeEvent
from slurm_soda.daemon.store.tables.sharing import ShareRow


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """All that the store knows of one job."""

    job: Job
    runs: Sequence[JobRun] = ()
    """First to last."""
    usage: Sequence[JobNodeUsage] = ()
    gpu_uses: Sequence[JobGpuUseRow] = ()
    cpus_on: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """CPUs that a run held on a node, by restart and node."""
    seen_s: Mapping[str, float] = field(default_factory=dict)
    """When agents last reported, by node; of all nodes that ever did."""
    progress: Sequence[JobProgressRow] = ()
    paces: Sequence[JobPaceRow] = ()
    shares: Sequence[ShareRow] = ()
    """In which it is or was a guest or a host."""
    fits: Sequence[CpuFitRow] = ()
    """How searches for its cores ended, by time."""


def read_facts(session: Session, job: Job) -> StoredFacts:
    """Everything about one job."""
    (facts,) = read_facts_of(session, [job])
    return StoredFacts(
        job=job,
        runs=facts.runs,
        usage=facts.usage,
        gpu_uses=facts.gpu_uses,
        cpus_on=facts.cpus_on,
        seen_s=facts.seen_s,
        progress=progress_of(session, job),
        paces=paces_of(session, job),
        shares=shares_of(session, job.job_id, job.submit_s),
        fits=fits_of(session, job.job_id, job.submit_s),
    )


def read_facts_of(session: Session, jobs: Sequence[Job]) -> list[StoredFacts]:
    """Of each job what it used, without progress, shares and searches for cores."""
    runs: dict[int, list[JobRun]] = defaultdict(list)
    for keys in split_list([job.id for job in jobs]):
        for run in session.scalars(select(JobRun).where(JobRun.job_pk.in_(keys)).order_by(JobRun.restart)):
            runs[run.job_pk].append(run)
    usage, uses = usage_by_job(session, jobs), gpu_uses_by_job(session, [job.job_id for job in jobs])
    openings = _openings(session, [job.job_id for job in jobs])
    seen_s = {node: at_s for node, at_s in session.execute(select(AgentHeartbeat.node, AgentHeartbeat.seen_s))}  # noqa: C416
    return [
        StoredFacts(
            job=job,
            runs=runs[job.id],
            usage=[row for row in usage[job.job_id] if belongs_to(row.first_s, job)],
            gpu_uses=[row for row in uses[job.job_id] if belongs_to(row.first_s, job)],
            cpus_on={
                (event.restart, event.node): event.record["cpus"]
                for event in openings[job.job_id]
                if belongs_to(event.at_s, job) and event.record.get("cpus")
            },
            seen_s=seen_s,
        )
        for job in jobs
    ]


def _openings(session: Session, job_ids: Sequence[int]) -> dict[int, list[NodeEvent]]:
    found: dict[int, list[NodeEvent]] = defaultdict(list)
    for part in split_list(sorted(set(job_ids))):
        query = select(NodeEvent).where(NodeEvent.job_id.in_(part), NodeEvent.kind == "open")
        for event in session.scalars(query.order_by(NodeEvent.at_s)):
            found[event.job_id].append(event)
    return found

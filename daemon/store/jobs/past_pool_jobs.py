"""Jobs that ran lately, as the derivation of shares wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Subquery, and_, case, func, or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import REASONS_WITH_BEST_CORES, is_fit_of_job, is_fit_of_shared_run
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob
from slurm_soda.slurm_ext.read.hostlist import expand_hosts


class _Fit(NamedTuple):
    restart: int
    search: int
    node: str
    cores: int


def past_pool_jobs(
    session: Session, *, since_s: float, now_s: float, gpu_types: Mapping[str, str]
) -> list[PastPoolJob]:
    """Jobs with a run that ended after ``since_s`` or still goes on, by the store's key; time before that does not count.

    Args:
        gpu_types: GPU type by node name; a job is of the type of the node where it ran last.
    """
    ran = _run_time_by_job(since_s, now_s)
    rows = session.execute(
        select(Job.id, Job.gpus, Job.nodes, Job.cpus, ran.c.run_s, JobRun.node_names)
        .join(ran, ran.c.job_pk == Job.id)
        # Not the run that was recorded last: one that nobody saw is recorded when it is found.
        .join(JobRun, and_(JobRun.job_pk == Job.id, JobRun.restart == ran.c.last_restart))
        .order_by(Job.id)
    ).all()
    best = _best_cores(session, ran)
    return [
        PastPoolJob(
            gpus=row.gpus,
            nodes=max(row.nodes, 1),
            cpus=row.cpus,
            run_s=max(row.run_s, 0.0),
            best_cores=best.get(row.id),
            gpu_type=next((gpu_types[node] for node in expand_hosts(row.node_names) if node in gpu_types), ""),
        )
        for row in rows
    ]


def _run_time_by_job(since_s: float, now_s: float) -> Subquery:
    """By job how long it ran since an instant, and its last restart count."""
    # A run that sodad did not see end was over when its job was.
    until_s = func.coalesce(JobRun.end_s, Job.end_s, now_s)
    from_s = case((JobRun.start_s < since_s, since_s), else_=JobRun.start_s)
    unfinished = and_(JobRun.end_s.is_(None), or_(Job.end_s.is_(None), Job.end_s > since_s))
    return (
        select(JobRun.job_pk, func.sum(until_s - from_s).label("run_s"), func.max(JobRun.restart).label("last_restart"))
        .join(Job, Job.id == JobRun.job_pk)
        .where(or_(JobRun.end_s > since_s, unfinished))
        .group_by(JobRun.job_pk)
        .subquery()
    )


def _best_cores(session: Session, ran: Subquery) -> dict[int, int]:
    """Cores on each node that a job needs, by the job's key, where its newest search tells."""
    query = (
        select(Job.id, CpuFitRow.restart, CpuFitRow.search, CpuFitRow.node, CpuFitRow.cores)
        .join(ran, ran.c.job_pk == Job.id)
        .join(CpuFitRow, CpuFitRow.job_id == Job.job_id)
        .where(CpuFitRow.reason.in_(REASONS_WITH_BEST_CORES), CpuFitRow.cores > 0)
        .where(is_fit_of_job(), ~is_fit_of_shared_run())
        .order_by(Job.id, CpuFitRow.restart, CpuFitRow.at_s, CpuFitRow.id)
    )
    by_job: dict[int, list[_Fit]] = {}
    for row in session.execute(query):
        by_job.setdefault(row.id, []).append(_Fit(row.restart, row.search, row.node, row.cores))
    return {pk: _needed_cores(fits) for pk, fits in by_job.items()}


def _needed_cores(fits: Sequence[_Fit]) -> int:
    """What the newest search of a job ended on, fits being given by restart and time; of its nodes the one that wants most.

    An agent that lost its records numbers its searches anew, so each node's newest fit counts alone.
    """
    last, newest = fits[-1], {fit.node: fit for fit in fits}
    return max(fit.cores for fit in newest.values() if (fit.restart, fit.search) == (last.restart, last.search))

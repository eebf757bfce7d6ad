"""What became of GPU jobs' cores, for people: asked, given and best, beside waits and utilisation (SODA's backend log)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import REASONS_WITH_BEST_CORES, fits_of, measurements_of, past_fits, proposals_of
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.jobs.finished_jobs import job_usage_totals, usage_by_job
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow, CpuProposalRow
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, NodeCapacity, StartCores, choose_start_cores
from slurm_soda.policies.pools.kinds import choose_pool_kind
from slurm_soda.slurm_ext.hints.flags import CATEGORIES

MAX_FITS = 5000
"""Jobs in one report that sodad sends."""
MAX_MEASUREMENTS = 2000
"""A job that runs for months may have been searched hundreds of times, on many nodes."""


@dataclass(frozen=True, slots=True)
class CpuFitFilters:
    """Which jobs are meant; ``None`` leaves a question open."""

    job_id: int | None = None
    user: str | None = None
    category: str | None = None
    model: str | None = None
    since_s: float | None = None
    """Submitted since."""


@dataclass(frozen=True, slots=True)
class CpuFitJob:
    """One GPU job; cores are per node. ``None`` where nobody knows, or not yet."""

    job_id: int
    user: str
    category: str
    """Empty: it named none."""
    model: str
    pool: str
    """``small`` or ``large`` (SODA, Section V-C)."""
    state: str
    submit_s: float
    queue_s: float | None
    """Submission to first start."""
    nodes: int
    gpus: int
    """On each node."""
    asked_cores: int
    given_cores: int
    """What it asks for now, while it waits."""
    best_cores: int | None
    """What the newest search found, where that tells what the job needs."""
    reason: str
    """How the newest search ended; empty without one."""
    steps: int | None
    start_ratio: float | None
    """GPU utilisation when that search began."""
    best_ratio: float | None
    """GPU utilisation with what it ended on."""
    gpu_util_ratio: float | None
    """Mean over all that agents saw of the job."""
    left_alone: str
    """Why its request was not changed, if sodad thought about it."""


@dataclass(frozen=True, slots=True)
class CpuFitGroup:
    """Jobs of one user, category and pool; cores per GPU, means over jobs."""

    user: str
    category: str
    pool: str
    jobs: int
    fits: int
    """Jobs whose search tells what they need; the figures of best and utilisation are theirs."""
    asked_per_gpu: float
    given_per_gpu: float
    best_per_gpu: float | None
    start_ratio: float | None
    best_ratio: float | None
    gpu_util_ratio: float | None
    queue_median_s: float | None


@dataclass(frozen=True, slots=True)
class CpuFitReport:
    """What ``sodactl fit`` shows."""

    jobs: Sequence[CpuFitJob]
    more: bool
    """Older ones were left out."""
    fits: Sequence[CpuFitRow]
    """How each search of the one job that was asked for ended, by time."""
    measurements: Sequence[CpuMeasurementRow]
    """Of that job."""
    earlier_fits: int
    """Of the one user that was asked for."""
    next_starts: Mapping[str, StartCores]
    """What that user's next job with one GPU would start with, by category."""


def read_cpu_fit_report(session: Session, filters: CpuFitFilters, limit: int = 0) -> CpuFitReport:
    """The newest ``limit`` jobs (0: all), with more about the one job or the one user that was asked for.

    Of one job the newest :data:`MAX_MEASUREMENTS` measurements and fits.
    """
    found = read_cpu_fit_jobs(session, filters, limit + 1 if limit else 0)
    jobs = found[-limit:] if limit else found
    one = jobs[-1] if jobs and filters.job_id is not None else None
    user = filters.user
    return CpuFitReport(
        jobs=jobs,
        more=len(found) > len(jobs),
        fits=fits_of(session, one.job_id, one.submit_s)[-MAX_MEASUREMENTS:] if one else [],
        measurements=measurements_of(session, one.job_id, one.submit_s, newest=MAX_MEASUREMENTS) if one else [],
        earlier_fits=len(past_fits(session, user)) if user is not None else 0,
        next_starts=next_starts(session, user, CATEGORIES) if user is not None else {},
    )


def read_cpu_fit_jobs(session: Session, filters: CpuFitFilters, limit: int = 0) -> list[CpuFitJob]:
    """GPU jobs by submission, oldest first; ``limit`` keeps the newest so many, 0 all."""
    query = select(Job).where(Job.gpus > 0, *_matches(filters)).order_by(Job.submit_s.desc(), Job.job_id.desc())
    jobs = session.scalars(query.limit(limit) if limit else query).all()[::-1]
    fits, usage = _newest_fits(session, jobs), usage_by_job(session, jobs)
    starts = {(row.job_id, row.submit_s): row for row in proposals_of(session, [job.job_id for job in jobs])}
    return [
        _cpu_fit_job(
            job,
            fits.get((job.job_id, job.submit_s)),
            starts.get((job.job_id, job.submit_s)),
            job_usage_totals(job, usage[job.job_id]).gpu_util_ratio,
        )
        for job in jobs
    ]


def group_cpu_fit_jobs(jobs: Sequence[CpuFitJob]) -> list[CpuFitGroup]:
    """Jobs by user, category and pool, in this order."""
    grouped: dict[tuple[str, str, str], list[CpuFitJob]] = defaultdict(list)
    for job in jobs:
        grouped[job.user, job.category, job.pool].append(job)
    return [_group(*key, members) for key, members in sorted(grouped.items())]


def next_starts(session: Session, user: str, categories: Sequence[str]) -> dict[str, StartCores]:
    """What this user's next job with one GPU would start with, by category, on nodes that are large enough."""
    past = past_fits(session, user)
    anywhere = NodeCapacity(max([fit.cores for fit in past], default=1) + 64)
    return {category: choose_start_cores(CoreRequest(1, category), past, anywhere) for category in categories}


def _matches(filters: CpuFitFilters) -> Iterator[ColumnElement[bool]]:
    """What a job must be; the store looks, as it may hold years of them."""
    for column, value in ((Job.job_id, filters.job_id), (Job.user, filters.user)):
        if value is not None:
            yield column == value
    if filters.since_s is not None:
        yield Job.submit_s >= filters.since_s
    for key, hint in (("category", filters.category), ("model", filters.model)):
        if hint is not None:
            yield func.coalesce(Job.hints[key].as_string(), "") == hint


def _newest_fits(session: Session, jobs: Sequence[Job]) -> dict[tuple[int, float | None], CpuFitRow]:
    newest: dict[tuple[int, float | None], CpuFitRow] = {}
    for part in split_list([job.job_id for job in jobs]):
        query = select(CpuFitRow).where(CpuFitRow.job_id.in_(part))
        for fit in session.scalars(query.order_by(CpuFitRow.at_s, CpuFitRow.id)):
            newest[fit.job_id, fit.submit_s] = fit
    return newest


def _cpu_fit_job(
    job: Job, fit: CpuFitRow | None, start: CpuProposalRow | None, gpu_util_ratio: float | None
) -> CpuFitJob:
    nodes = max(job.nodes, 1)
    given = -(-job.cpus // nodes)
    asked = start.asked_cores if start is not None else fit.asked_cores if fit is not None else None
    return CpuFitJob(
        job_id=job.job_id,
        user=job.user,
        category=job.hints.get("category", ""),
        model=job.hints.get("model", ""),
        pool=str(choose_pool_kind(job.gpus)),
        state=job.state,
        submit_s=job.submit_s,
        queue_s=None if job.first_start_s is None else max(job.first_start_s - job.submit_s, 0.0),
        nodes=nodes,
        gpus=-(-job.gpus // nodes),
        asked_cores=given if asked is None else asked,
        given_cores=given,
        best_cores=fit.cores if fit is not None and fit.reason in REASONS_WITH_BEST_CORES else None,
        reason="" if fit is None else fit.reason,
        steps=None if fit is None else fit.steps,
        start_ratio=None if fit is None else fit.start_ratio,
        best_ratio=None if fit is None else fit.utilisation_ratio,
        gpu_util_ratio=gpu_util_ratio,
        left_alone="" if start is None else start.left_alone,
    )


def _group(user: str, category: str, pool: str, jobs: Sequence[CpuFitJob]) -> CpuFitGroup:
    fitted = [job for job in jobs if job.best_cores is not None]
    waits = [job.queue_s for job in jobs if job.queue_s is not None]
    return CpuFitGroup(
        user=user,
        category=category,
        pool=pool,
        jobs=len(jobs),
        fits=len(fitted),
        asked_per_gpu=fmean(job.asked_cores / job.gpus for job in jobs),
        given_per_gpu=fmean(job.given_cores / job.gpus for job in jobs),
        best_per_gpu=_mean((job.best_cores or 0) / job.gpus for job in fitted),
        start_ratio=_mean(job.start_ratio for job in fitted),
        best_ratio=_mean(job.best_ratio for job in fitted),
        gpu_util_ratio=_mean(job.gpu_util_ratio for job in jobs),
        queue_median_s=median(waits) if waits else None,
    )


def _mean(values: Iterator[float | None] | Iterator[float]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None

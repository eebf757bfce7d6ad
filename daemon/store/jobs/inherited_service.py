"""Attained service that new jobs inherit from cancelled ones: found in the job cache and in the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.engine.inherited_service import (
    INHERIT_WITHIN_S,
    CancelledService,
    JobIdentity,
    SuccessorCandidate,
    match_successors,
)

CANCELLED = "CANCELLED"


def inherit_services(session: Session, jobs: Collection[CachedJob], users: set[str], now_s: float) -> list[CachedJob]:
    """Let these users' jobs inherit; gives those that do.

    Args:
        session: reads ended jobs that are no longer listed.
        jobs: every job that is remembered.
        users: those with a new or newly cancelled job.
        now_s: the instant, Unix seconds.
    """
    theirs = [job for job in jobs if job.record is not None and job.record.user in users]
    services = {service.key: service for service in _stored_services(session, sorted(users), now_s)}
    for job in theirs:
        if job.state == CANCELLED and job.pk is not None and job.end_s is not None:
            services[job.pk] = _service(job.pk, job)
    passed_on = {job.inherited_from for job in jobs} | set(_passed_on(session, list(services)))
    left = [service for key, service in services.items() if key not in passed_on]
    new = {job.job_id: job for job in theirs if _may_inherit(job)} if left else {}
    found = match_successors(left, (_candidate(job) for job in new.values()))
    for job_id, service in found.items():
        new[job_id].inherit(service.key, service.executed_s)
    return [new[job_id] for job_id in found]


def _may_inherit(job: CachedJob) -> bool:
    """The waiting rest of an array is many jobs; its tasks inherit when they run, one by one."""
    record = job.record
    if record is None or job.end_s is not None or job.inherited_from is not None or job.promotions:
        return False
    return record.gpus > 0 and not (record.array_task and record.state == "PENDING")


def _identity(job: CachedJob) -> JobIdentity:
    assert job.record is not None
    return JobIdentity(job.record.user, job.record.name, job.record.gpus)


def _candidate(job: CachedJob) -> SuccessorCandidate:
    first_start_s = float("inf") if job.first_start_s is None else job.first_start_s
    return SuccessorCandidate(job.job_id, _identity(job), job.submit_s, first_start_s)


def _service(key: int, job: CachedJob) -> CancelledService:
    assert job.end_s is not None
    since_s = job.submit_s if job.first_start_s is None else job.first_start_s
    return CancelledService(key, _identity(job), since_s, job.end_s, job.executed_s)


def _stored_services(session: Session, users: list[str], now_s: float) -> Iterator[CancelledService]:
    for part in split_list(users):
        query = select(Job).where(
            Job.end_s >= now_s - INHERIT_WITHIN_S,
            Job.state == CANCELLED,
            Job.gpus > 0,
            Job.executed_s > 0,
            Job.user.in_(part),
        )
        for job in session.scalars(query):
            since_s = job.submit_s if job.first_start_s is None else job.first_start_s
            identity = JobIdentity(job.user, job.name, job.gpus)
            yield CancelledService(job.id, identity, since_s, job.end_s or now_s, job.executed_s)


def _passed_on(session: Session, keys: list[int]) -> Iterable[int | None]:
    for part in split_list(keys):
        yield from session.scalars(select(Job.inherited_from).where(Job.inherited_from.in_(part)))

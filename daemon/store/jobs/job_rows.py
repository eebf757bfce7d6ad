"""Remembered jobs and runs as rows of the store, written in bulk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, bindparam, insert, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.jobs.cached_job import CachedJob, CachedRun
from slurm_soda.daemon.store.jobs.wait_times import WaitTimes
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuProposalRow
from slurm_soda.daemon.store.tables.pools import PoolRunRow
from slurm_soda.daemon.store.tables.scheduling import Action, Job, JobRun, Preemption
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints import codec


def cached_job(row: Job) -> CachedJob:
    """A row of the store, without its runs."""
    return CachedJob(
        job_id=row.job_id,
        submit_s=row.submit_s,
        state=row.state,
        first_start_s=row.first_start_s,
        end_s=row.end_s,
        exit_code=row.exit_code,
        waited_since_s=row.waited_since_s,
        preemptions=row.preemptions,
        promotions=row.promotions,
        promoted_s=row.promoted_s,
        inherited_s=row.inherited_s,
        inherited_from=row.inherited_from,
        accounted=row.accounted,
        cpu_s=row.cpu_s,
        memory_peak_mib=row.memory_peak_mib,
        memory_mib=row.memory_mib or 0,
        waits=WaitTimes.from_json(row.waits),
        pk=row.id,
        dirty=False,
    )


def cached_run(row: JobRun) -> CachedRun:
    """A row of the store."""
    return CachedRun(
        row.restart,
        row.start_s,
        row.end_s,
        row.node_names,
        row.gpus,
        row.promoted_s,
        row.shared,
        pk=row.id,
        dirty=False,
    )


def save_jobs(session: Session, jobs: Sequence[CachedJob], now_s: float) -> int:
    """Insert jobs without a key (they get one) and update the others; gives the number of rows."""
    fresh = [(job, job.record) for job in jobs if job.pk is None and job.record is not None]
    shown = [
        {"pk": job.pk, **_history_columns(job), **_listed_columns(job.record, now_s)}
        for job in jobs
        if job.pk and job.record
    ]
    unseen = [{"pk": job.pk, **_history_columns(job)} for job in jobs if job.pk and not job.record]
    if fresh:
        rows = [
            _identity_columns(job, record) | _history_columns(job) | _listed_columns(record, now_s)
            for job, record in fresh
        ]
        keys = session.scalars(insert(Job).returning(Job.id, sort_by_parameter_order=True), rows)
        for (job, _), pk in zip(fresh, keys, strict=True):
            job.pk = pk
    for job in jobs:
        _follow_submit_time(session, job)
    _update(session, Job.__table__, shown)
    _update(session, Job.__table__, unseen)
    return len(fresh) + len(shown) + len(unseen)


def save_runs(session: Session, jobs: Sequence[CachedJob]) -> int:
    """The same for the runs of jobs that have a key."""
    runs = [(job, run) for job in jobs if job.pk for run in job.runs.values() if run.dirty]
    fresh = [(job, run) for job, run in runs if run.pk is None]
    known = [{"pk": run.pk, **_run_columns(run)} for _, run in runs if run.pk is not None]
    if fresh:
        rows = [{"job_pk": job.pk, "restart": run.restart, **_run_columns(run)} for job, run in fresh]
        keys = session.scalars(insert(JobRun).returning(JobRun.id, sort_by_parameter_order=True), rows)
        for (_, run), pk in zip(fresh, keys, strict=True):
            run.pk = pk
    _update(session, JobRun.__table__, known)
    return len(runs)


def _update(session: Session, table: Any, rows: Sequence[dict[str, Any]]) -> None:
    """One statement for all rows, which have the same keys."""
    if not rows:
        return
    assert isinstance(table, Table)
    names = [name for name in rows[0] if name != "pk"]
    statement = update(table).where(table.c.id == bindparam("pk")).values({n: bindparam(f"new_{n}") for n in names})
    session.connection().execute(statement, [{"pk": row["pk"], **{f"new_{n}": row[n] for n in names}} for row in rows])


def _follow_submit_time(session: Session, job: CachedJob) -> None:
    """Job id and submit time name a job everywhere: what was written under a later time follows it."""
    if job.moved_from_s is None:
        return
    for table in (Action, Preemption, PoolRunRow, CpuFitRow, CpuProposalRow):
        mine = (table.job_id == job.job_id) & (table.submit_s == job.moved_from_s)
        session.execute(update(table).where(mine).values(submit_s=job.submit_s))
    job.moved_from_s = None


def _identity_columns(job: CachedJob, record: SlurmJob) -> dict[str, Any]:
    return {"job_id": job.job_id, "user": record.user, "note": {}}


def _history_columns(job: CachedJob) -> dict[str, Any]:
    return {
        "submit_s": job.submit_s,
        "state": job.state,
        "first_start_s": job.first_start_s,
        "end_s": job.end_s,
        "exit_code": job.exit_code,
        "executed_s": job.executed_s,
        "waited_since_s": job.waited_since_s,
        "preemptions": job.preemptions,
        "promotions": job.promotions,
        "promoted_s": job.promoted_s,
        "inherited_s": job.inherited_s,
        "inherited_from": job.inherited_from,
        "accounted": job.accounted,
        "cpu_s": job.cpu_s,
        "memory_peak_mib": job.memory_peak_mib,
        "memory_mib": job.memory_mib or None,
        "waits": job.waits.to_json(),
    }


def _listed_columns(record: SlurmJob, now_s: float) -> dict[str, Any]:
    return {
        "account": record.account,
        "partition": record.partition,
        "name": record.name,
        "reason": record.reason,
        "gpus": record.gpus,
        "nodes": record.nodes,
        "cpus": record.cpus,
        "time_limit_s": record.time_limit_s if math.isfinite(record.time_limit_s) else None,
        "hints": codec.hints_to_dict(record.hints),
        "last_seen_s": now_s,
    }


def _run_columns(run: CachedRun) -> dict[str, Any]:
    return {
        "start_s": run.start_s,
        "end_s": run.end_s,
        "node_names": run.node_names,
        "gpus": run.gpus,
        "promoted_s": run.promoted_s,
        "shared": run.shared,
    }

"""Remembered jobs and runs as rows of the store, written in bulk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, bindparam, insert, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.arrays_schema import ArrayRun
from slurm_soda.daemon.store.cores_schema import CoreFitted, CoreStart
from slurm_soda.daemon.store.memory import RememberedJob, RememberedRun
from slurm_soda.daemon.store.schema import Action, Job, Preemption, Run
from slurm_soda.slurm_ext import codec
from slurm_soda.slurm_ext.client import JobRecord


def remembered_job(row: Job) -> RememberedJob:
    """A row of the store, without its runs."""
    return RememberedJob(
        job_id=row.job_id, submit_s=row.submit_s, state=row.state, first_start_s=row.first_start_s, end_s=row.end_s,
        exit_code=row.exit_code, waited_since_s=row.waited_since_s, preemptions=row.preemptions,
        promotions=row.promotions, promoted_s=row.promoted_s, accounted=row.accounted, cpu_s=row.cpu_s,
        memory_peak_mib=row.memory_peak_mib, pk=row.id, dirty=False,
    )  # fmt: skip


def remembered_run(row: Run) -> RememberedRun:
    """A row of the store."""
    return RememberedRun(
        row.restart, row.start_s, row.end_s, row.node_names, row.gpus, row.promoted_s, pk=row.id, dirty=False
    )


def save_jobs(session: Session, jobs: Sequence[RememberedJob], now_s: float) -> int:
    """Insert jobs without a key (they get one) and update the others; gives the number of rows."""
    fresh = [(job, job.record) for job in jobs if job.pk is None and job.record is not None]
    shown = [{"pk": job.pk, **_memory(job), **_shown(job.record, now_s)} for job in jobs if job.pk and job.record]
    unseen = [{"pk": job.pk, **_memory(job)} for job in jobs if job.pk and not job.record]
    if fresh:
        rows = [_identity(job, record) | _memory(job) | _shown(record, now_s) for job, record in fresh]
        keys = session.scalars(insert(Job).returning(Job.id, sort_by_parameter_order=True), rows)
        for (job, _), pk in zip(fresh, keys, strict=True):
            job.pk = pk
    for job in jobs:
        _move(session, job)
    _update(session, Job.__table__, shown)
    _update(session, Job.__table__, unseen)
    return len(fresh) + len(shown) + len(unseen)


def save_runs(session: Session, jobs: Sequence[RememberedJob]) -> int:
    """The same for the runs of jobs that have a key."""
    runs = [(job, run) for job in jobs if job.pk for run in job.runs.values() if run.dirty]
    fresh = [(job, run) for job, run in runs if run.pk is None]
    known = [{"pk": run.pk, **_run(run)} for _, run in runs if run.pk is not None]
    if fresh:
        rows = [{"job_pk": job.pk, "restart": run.restart, **_run(run)} for job, run in fresh]
        keys = session.scalars(insert(Run).returning(Run.id, sort_by_parameter_order=True), rows)
        for (_, run), pk in zip(fresh, keys, strict=True):
            run.pk = pk
    _update(session, Run.__table__, known)
    return len(runs)


def _update(session: Session, table: Any, rows: Sequence[dict[str, Any]]) -> None:
    """One statement for all rows, which have the same keys."""
    if not rows:
        return
    assert isinstance(table, Table)
    names = [name for name in rows[0] if name != "pk"]
    statement = update(table).where(table.c.id == bindparam("pk")).values({n: bindparam(f"new_{n}") for n in names})
    session.connection().execute(statement, [{"pk": row["pk"], **{f"new_{n}": row[n] for n in names}} for row in rows])


def _move(session: Session, job: RememberedJob) -> None:
    """Job id and submit time name a job everywhere: what was written under a later time follows it."""
    if job.moved_from_s is None:
        return
    for table in (Action, Preemption, ArrayRun, CoreFitted, CoreStart):
        mine = (table.job_id == job.job_id) & (table.submit_s == job.moved_from_s)
        session.execute(update(table).where(mine).values(submit_s=job.submit_s))
    job.moved_from_s = None


def _identity(job: RememberedJob, record: JobRecord) -> dict[str, Any]:
    return {"job_id": job.job_id, "user": record.user, "note": {}}


def _memory(job: RememberedJob) -> dict[str, Any]:
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
        "accounted": job.accounted,
        "cpu_s": job.cpu_s,
        "memory_peak_mib": job.memory_peak_mib,
    }


def _shown(record: JobRecord, now_s: float) -> dict[str, Any]:
    return {
        "account": record.account,
        "partition": record.partition,
        "name": record.name,
        "reason": record.reason,
        "gpus": record.gpus,
        "nodes": record.nodes,
        "cpus": record.cpus,
        "time_limit_s": record.time_limit_s if math.isfinite(record.time_limit_s) else None,
        "hints": codec.to_dict(record.hints),
        "last_seen_s": now_s,
    }


def _run(run: RememberedRun) -> dict[str, Any]:
    return {
        "start_s": run.start_s,
        "end_s": run.end_s,
        "node_names": run.node_names,
        "gpus": run.gpus,
        "promoted_s": run.promoted_s,
    }

"""Runs in pools: kept as they begin and end, and summed up for each pool (SODA's backend log, Section V-A)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import numpy as np
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.tables.pools import PoolRunRow
from slurm_soda.daemon.store.tables.scheduling import Job


@dataclass(slots=True)
class PoolRun:
    """One run in a pool, before it is stored; fields as in :class:`~slurm_soda.daemon.store.tables.pools.PoolRunRow`."""

    job_id: int
    submit_s: float
    restart: int
    user: str
    base: str
    kind: str
    partition: str
    borrowing: bool
    gpus: int
    cpus: int
    queued_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    aborted: bool = False


_COLUMNS = tuple(spec.name for spec in fields(PoolRun))


def load_pool_runs(session: Session) -> list[PoolRun]:
    """The runs of all jobs that have not ended, by job and restart: they tell how often each was aborted."""
    live = and_(Job.job_id == PoolRunRow.job_id, Job.submit_s == PoolRunRow.submit_s, Job.end_s.is_(None))
    rows = session.scalars(select(PoolRunRow).join(Job, live).order_by(PoolRunRow.job_id, PoolRunRow.restart))
    return [PoolRun(**{name: getattr(row, name) for name in _COLUMNS}) for row in rows]


def save_pool_runs(session: Session, tenancies: Iterable[PoolRun]) -> None:
    """Insert or update runs; a run is named by its job and restart, so that none is there twice."""
    for gpu_occupancy in tenancies:
        key = {name: getattr(gpu_occupancy, name) for name in ("job_id", "submit_s", "restart")}
        row = session.scalars(select(PoolRunRow).filter_by(**key)).first()
        if row is None:
            session.add(PoolRunRow(**asdict(gpu_occupancy)))
            continue
        for name in _COLUMNS:
            setattr(row, name, getattr(gpu_occupancy, name))


@dataclass(frozen=True, slots=True)
class PoolLog:
    """What one pool did over a time. Times in seconds."""

    base: str
    kind: str
    runs: int
    """That began."""
    running: int
    queue_mean_s: float | None
    """How long jobs waited for a run."""
    queue_p95_s: float | None
    core_s: float
    borrowed_core_s: float
    """Of it, in borrowing partitions."""
    gpu_s: float
    borrowed_gpu_s: float
    aborts: int
    most_aborts: int
    """Of one job."""


def pool_logs(session: Session, *, since_s: float, now_s: float) -> list[PoolLog]:
    """The log of every pool with a run that did not end before ``since_s``; runs that go on count up to ``now_s``."""
    late = or_(PoolRunRow.end_s.is_(None), PoolRunRow.end_s >= since_s)
    groups: dict[tuple[str, str], list[PoolRunRow]] = {}
    for row in session.scalars(
        select(PoolRunRow).where(late).order_by(PoolRunRow.base, PoolRunRow.kind, PoolRunRow.id)
    ):
        groups.setdefault((row.base, row.kind), []).append(row)
    return [_pool_log(base, kind, rows, since_s, now_s) for (base, kind), rows in groups.items()]


def _pool_log(base: str, kind: str, rows: list[PoolRunRow], since_s: float, now_s: float) -> PoolLog:
    seen = [(row, _within_s(row, since_s, now_s)) for row in rows]
    queued_s = [row.queued_s for row in rows if row.queued_s is not None and (row.start_s or 0.0) >= since_s]
    aborts: dict[tuple[int, float], int] = {}
    for row in rows:
        aborts[row.job_id, row.submit_s] = aborts.get((row.job_id, row.submit_s), 0) + row.aborted
    return PoolLog(
        base=base,
        kind=kind,
        runs=len(queued_s),
        running=sum(row.end_s is None for row in rows),
        queue_mean_s=float(np.mean(queued_s)) if queued_s else None,
        queue_p95_s=float(np.percentile(queued_s, 95)) if queued_s else None,
        core_s=sum(row.cpus * s for row, s in seen),
        borrowed_core_s=sum(row.cpus * s for row, s in seen if row.borrowing),
        gpu_s=sum(row.gpus * s for row, s in seen),
        borrowed_gpu_s=sum(row.gpus * s for row, s in seen if row.borrowing),
        aborts=sum(aborts.values()),
        most_aborts=max(aborts.values(), default=0),
    )


def _within_s(row: PoolRunRow, since_s: float, now_s: float) -> float:
    if row.start_s is None:
        return 0.0
    return max(0.0, (now_s if row.end_s is None else row.end_s) - max(row.start_s, since_s))

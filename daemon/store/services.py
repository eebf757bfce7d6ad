"""Services in the store: newest reports, load by minute, and instances that leave."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

import numpy as np
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.services.drains import Drain, DrainPhase
from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.service_board import FORGOTTEN_AFTER_S
from slurm_soda.daemon.services.service_load import MINUTE_S, MOST_COUNT, LoadMinute
from slurm_soda.daemon.store.tables.services import ServiceDrainRow, ServiceMinuteRow, ServiceRow
from slurm_soda.policies.services.forecast import LoadHistory
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.services.router_report import RouterReport
from slurm_soda.wire.services.service_file import ReplicaLimits, read_service_file


def load_services(session: Session, at: Instant) -> list[KnownService]:
    """All services that are known; one that cannot be read any more waits for its next report."""
    found = []
    for row in session.scalars(select(ServiceRow).order_by(ServiceRow.id)):
        try:
            report = RouterReport.from_json(row.report.encode("utf-8", "surrogateescape"))
            file = read_service_file(report.service_file, "service's file")
        except RecordError as error:
            log(logging.WARNING, "service-not-read", owner=row.owner, name=row.name, error=error)
            continue
        found.append(
            KnownService(
                ServiceKey(row.owner, row.name),
                file,
                report,
                row.reported_at_s,
                at.steady_since(row.reported_at_s, 2 * FORGOTTEN_AFTER_S),
                _limits(row.least, row.most),
                _limits(row.file_least, row.file_most),
            )
        )
    return found


def load_low_since(session: Session) -> dict[ServiceKey, float]:
    """Since when fewer instances would have done, by service, as far as that is so."""
    query = select(ServiceRow.owner, ServiceRow.name, ServiceRow.low_since_s).where(ServiceRow.low_since_s.is_not(None))
    return {ServiceKey(owner, name): low_s for owner, name, low_s in session.execute(query) if low_s is not None}


def save_services(session: Session, services: Iterable[KnownService], low_since_s: dict[ServiceKey, float]) -> None:
    """Write the newest reports."""
    for one in services:
        row = session.scalar(
            select(ServiceRow).where(ServiceRow.owner == one.key.owner, ServiceRow.name == one.key.name)
        )
        if row is None:
            row = ServiceRow(owner=one.key.owner, name=one.key.name)
            session.add(row)
        scaled, scaled_from = one.scaled, one.scaled_from
        row.report = json.dumps(one.report.to_dict(), ensure_ascii=True)
        row.reported_at_s, row.low_since_s = one.reported_at_s, low_since_s.get(one.key)
        row.least, row.most = (None, None) if scaled is None else (scaled.least, scaled.most)
        row.file_least, row.file_most = (None, None) if scaled_from is None else (scaled_from.least, scaled_from.most)


def forget_services(session: Session, gone: Collection[ServiceKey]) -> None:
    """These are not known any more; their minutes stay until they are old."""
    for key in gone:
        session.execute(delete(ServiceRow).where(ServiceRow.owner == key.owner, ServiceRow.name == key.name))


def add_minutes(session: Session, minutes: Iterable[LoadMinute]) -> None:
    """Write minutes that are over; one that a daemon before this one wrote is put together with it."""
    for one in minutes:
        same = (
            ServiceMinuteRow.owner == one.owner,
            ServiceMinuteRow.name == one.name,
            ServiceMinuteRow.at_s == one.at_s,
        )
        row = session.scalar(select(ServiceMinuteRow).where(*same))
        if row is None:
            session.add(
                ServiceMinuteRow(
                    owner=one.owner, name=one.name, at_s=one.at_s, load_qps=one.load_qps, most_qps=one.most_qps,
                    p99_ms=one.p99_ms, queries=one.queries, errors=one.errors, violations=one.violations,
                    cpu=one.cpu, gpu=one.gpu,
                )
            )  # fmt: skip
            continue
        row.load_qps, row.most_qps = (row.load_qps + one.load_qps) / 2.0, max(row.most_qps, one.most_qps)
        row.p99_ms = max(row.p99_ms, one.p99_ms)
        for name in ("queries", "errors", "violations"):
            setattr(row, name, min(getattr(row, name) + getattr(one, name), MOST_COUNT))
        row.cpu, row.gpu = max(row.cpu, one.cpu), max(row.gpu, one.gpu)


def load_loads(session: Session, since_s: float) -> Iterator[tuple[ServiceKey, LoadHistory]]:
    """Load by minute of the services that are known, since an instant; one at a time, as a month has many minutes."""
    known = session.execute(select(ServiceRow.owner, ServiceRow.name).order_by(ServiceRow.id)).all()
    for owner, name in known:
        own = (ServiceMinuteRow.owner == owner, ServiceMinuteRow.name == name, ServiceMinuteRow.at_s >= since_s)
        rows = session.execute(select(ServiceMinuteRow.at_s, ServiceMinuteRow.load_qps).where(*own)).all()
        if rows:
            columns = np.array([(at_s // MINUTE_S, load_qps) for at_s, load_qps in rows])
            yield ServiceKey(owner, name), LoadHistory.of(columns[:, 0].astype(np.int64), columns[:, 1])


def minutes_of(session: Session, key: ServiceKey, since_s: float) -> Sequence[ServiceMinuteRow]:
    """Minutes of one service since an instant, oldest first."""
    query = select(ServiceMinuteRow).where(
        ServiceMinuteRow.owner == key.owner, ServiceMinuteRow.name == key.name, ServiceMinuteRow.at_s >= since_s
    )
    return session.scalars(query.order_by(ServiceMinuteRow.at_s)).all()


def load_drains(session: Session, at: Instant, grace_s: float) -> list[Drain]:
    """Instances that leave, oldest first; none is waited for longer than ``grace_s`` from now."""
    rows = session.scalars(select(ServiceDrainRow).where(ServiceDrainRow.phase != "over").order_by(ServiceDrainRow.id))
    return [
        Drain(
            job_id=row.job_id,
            submit_s=row.submit_s,
            restart=row.restart,
            key=ServiceKey(row.owner, row.name),
            why=row.why,
            asked_s=row.asked_s,
            asked_steady_s=at.steady_since(row.asked_s, 2 * FORGOTTEN_AFTER_S),
            deadline_s=at.steady_s + min(row.deadline_s - at.now_s, grace_s),
            by_owner=row.by_owner,
            phase=cast("DrainPhase", row.phase),
            pk=row.id,
        )
        for row in rows
    ]


def save_drains(session: Session, drains: Iterable[Drain], at: Instant) -> None:
    """Record them; new ones get their keys."""
    for one in drains:
        row = session.get(ServiceDrainRow, one.pk) if one.pk else None
        if row is None:
            row = ServiceDrainRow(
                job_id=one.job_id,
                submit_s=one.submit_s,
                restart=one.restart,
                owner=one.key.owner,
                name=one.key.name,
                by_owner=one.by_owner,
                why=one.why,
                asked_s=one.asked_s,
            )
            session.add(row)
        row.phase, row.end, row.ended_s = one.phase, one.end, one.ended_s
        row.deadline_s = at.wall(one.deadline_s)
        session.flush()
        one.pk = row.id


def _limits(least: int | None, most: int | None) -> ReplicaLimits | None:
    return None if least is None or most is None else ReplicaLimits(least, most)

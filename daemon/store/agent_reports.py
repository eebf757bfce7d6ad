"""A node's report into the store; a report that comes twice does no harm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import add_fit, add_measurement
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, JobNodeUsage, NodeEvent
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport


def store_report(session: Session, report: NodeReport, now_s: float) -> int:
    """Take in one report; gives the number of openings and closings that are new.

    Usage is cumulative, so the newest record of a run on a node replaces the one before.
    """
    _store_heartbeat(session, report, now_s)
    new = sum(_add_event(session, kind, record) for kind, record in _events(report))
    for usage in report.usage:
        _put_usage(session, usage)
    for measurement in report.core_measurements:
        add_measurement(session, measurement)
    for fit in report.core_fits:
        add_fit(session, fit)
    return new


def _events(report: NodeReport) -> Iterable[tuple[str, JobOpened | JobClosed]]:
    yield from (("open", record) for record in report.opened)
    yield from (("close", record) for record in report.closed)


def _store_heartbeat(session: Session, report: NodeReport, now_s: float) -> None:
    seen = session.get(AgentHeartbeat, report.node)
    if seen is None:
        seen = AgentHeartbeat(node=report.node)
        session.add(seen)
    seen.agent_id, seen.seq, seen.seen_s = report.agent_id, report.seq, now_s
    seen.gpu_count, seen.faults = report.gpu_count, list(report.faults)


def _add_event(session: Session, kind: str, record: JobOpened | JobClosed) -> bool:
    key: dict[str, Any] = {
        "kind": kind,
        "job_id": record.job_id,
        "restart": record.restart,
        "node": record.node,
        "at_s": record.at_s,
    }
    if session.scalar(select(NodeEvent.id).filter_by(**key)) is not None:
        return False
    session.add(NodeEvent(**key, record=asdict(record)))
    session.flush()
    return True


def _put_usage(session: Session, usage: JobUsage) -> None:
    values = asdict(usage)
    key = {name: values.pop(name) for name in ("job_id", "restart", "node", "first_s")}
    row = session.scalars(select(JobNodeUsage).filter_by(**key)).first()
    if row is None:
        session.add(JobNodeUsage(**key, **values))
        session.flush()
    elif usage.last_s >= row.last_s:
        for name, value in values.items():
            setattr(row, name, value)

"""A node's report into the store; a report that comes twice does no harm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import Insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cpu_fit import add_fit, add_measurement
from slurm_soda.daemon.store.faulted_pairs import add_faults
from slurm_soda.daemon.store.gpu_uses import gpu_use_columns
from slurm_soda.daemon.store.progress import CoRunners, RunId, take_progress
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, Base, JobNodeUsage, NodeEvent
from slurm_soda.wire.gpu_use import RunGpuUse
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport

NODE_SILENT_S = 60.0
"""An agent that has not reported for so long is silent; it reports every 30 s where nothing changes."""

_RECORDS = ("opened", "closed", "usage", "core_measurements", "core_fits", "progress", "gpu_uses")
"""Fields of a report that are lists of records."""

NO_CO_RUNNERS: Mapping[RunId, CoRunners] = MappingProxyType({})

_USAGE_KEY = ("job_id", "restart", "node", "first_s")


def is_stored(session: Session, report: NodeReport) -> bool:
    """Whether this very report is in the store, as a whole, and the newest of its node."""
    seen = session.get(AgentHeartbeat, report.node)
    return seen is not None and (seen.agent_id, seen.seq) == (report.agent_id, report.seq)


def count_records(report: NodeReport) -> int:
    """Records of all kinds in a report."""
    return sum(len(getattr(report, name)) for name in _RECORDS)


def without_records(report: NodeReport) -> NodeReport:
    """Only the sign of life in a report."""
    none: dict[str, Any] = dict.fromkeys(_RECORDS, ())
    return replace(report, mps_faults=(), **none)


def split_report(report: NodeReport, most: int) -> Iterator[NodeReport]:
    """The report in parts of at most ``most`` records, at least one.

    All but the last are for :func:`store_records`: the report counts as stored with its last part.
    """
    left = report
    while count_records(left) > most:
        room, now, later = most, {}, {}
        for name in _RECORDS:
            records = getattr(left, name)
            now[name], later[name] = records[:room], records[room:]
            room -= len(now[name])
        yield replace(left, **now, mps_faults=())
        left = replace(left, **later)
    yield left


def store_report(
    session: Session,
    report: NodeReport,
    now_s: float,
    co_runners_of: Mapping[RunId, CoRunners] = NO_CO_RUNNERS,
    *,
    remembers_node: bool = True,
) -> None:
    """Take in one report; ``co_runners_of``: as for :func:`store_records`; ``remembers_node``: with its sign of life."""
    store_records(session, report, co_runners_of)
    if remembers_node:
        _store_heartbeat(session, report, now_s)


def store_records(
    session: Session, report: NodeReport, co_runners_of: Mapping[RunId, CoRunners] = NO_CO_RUNNERS
) -> None:
    """Take in the records of a report.

    Usage is cumulative, so the newest record of a run on a node replaces the one before. ``co_runners_of``: whom each run
    has on its GPUs now; progress of a run that is missing there is counted for none.
    """
    _add_events(session, "open", report.opened)
    _add_events(session, "close", report.closed)
    _put_usages(session, report.usage)
    _put_gpu_uses(session, report.gpu_uses)
    for measurement in report.core_measurements:
        add_measurement(session, measurement)
    for fit in report.core_fits:
        add_fit(session, fit)
    take_progress(session, report.progress, co_runners_of)
    add_faults(session, report.node, report.mps_faults)


def _store_heartbeat(session: Session, report: NodeReport, now_s: float) -> None:
    seen = session.get(AgentHeartbeat, report.node)
    if seen is None:
        seen = AgentHeartbeat(node=report.node)
        session.add(seen)
    seen.agent_id, seen.seq, seen.seen_s = report.agent_id, report.seq, now_s
    seen.gpu_count, seen.faults = report.gpu_count, list(report.faults)
    lapse = {"lapse": kept} if seen.walls and (kept := seen.walls[0].get("lapse")) else {}
    seen.walls = [asdict(walls) | lapse for walls in report.walls]
    seen.hooks = [asdict(settings) for settings in report.hooks]


def _add_events(session: Session, kind: str, records: Sequence[JobOpened | JobClosed]) -> None:
    rows = [
        {
            "kind": kind,
            "job_id": record.job_id,
            "restart": record.restart,
            "node": record.node,
            "at_s": record.at_s,
            "record": asdict(record),
        }
        for record in records
    ]
    _execute(session, _insert_into(NodeEvent, session).on_conflict_do_nothing(), rows)


def _put_usages(session: Session, usages: Sequence[JobUsage]) -> None:
    insert = _insert_into(JobNodeUsage, session)
    newest = {name: insert.excluded[name] for name in JobUsage.__dataclass_fields__ if name not in _USAGE_KEY}
    upsert = insert.on_conflict_do_update(
        index_elements=_USAGE_KEY, set_=newest, where=insert.excluded.last_s >= JobNodeUsage.last_s
    )
    _execute(session, upsert, [asdict(usage) for usage in usages])


def _put_gpu_uses(session: Session, uses: Sequence[RunGpuUse]) -> None:
    insert = _insert_into(JobGpuUseRow, session)
    upsert = insert.on_conflict_do_update(
        index_elements=_USAGE_KEY,
        set_={name: insert.excluded[name] for name in ("last_s", "gpus")},
        where=insert.excluded.last_s >= JobGpuUseRow.last_s,
    )
    _execute(session, upsert, [gpu_use_columns(use) for use in uses])


def _insert_into(table: type[Base], session: Session) -> sqlite.Insert | postgresql.Insert:
    """An insertion that can tell what is to be done about rows that are there already; both databases mean the same."""
    on_server = session.get_bind().dialect.name == "postgresql"
    return postgresql.insert(table) if on_server else sqlite.insert(table)


def _execute(session: Session, statement: Insert, rows: Sequence[dict[str, Any]]) -> None:
    """Run a statement for each row."""
    if rows:
        session.connection().execute(statement, rows)

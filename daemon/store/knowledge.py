"""Reading and writing what is known; every function takes an open session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slurm_soda.daemon.store.knowledge_schema import KnowledgeEdit, KnownModel, KnownValue, ObservedJob, RunTimeTold
from slurm_soda.daemon.store.schema import Job
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

KIND = ("model", "batch", "gpu_type", "gpus")
KEY = (*KIND, "partner", "partner_batch", "quantity", "source")
"""Columns that name a value."""

_IDS_PER_QUERY = 500


def all_values(session: Session) -> Sequence[KnownValue]:
    """Every value, by what it is about."""
    columns = [getattr(KnownValue, name) for name in KEY]
    return session.scalars(select(KnownValue).order_by(*columns)).all()


def peaks_mib(session: Session) -> dict[tuple[str, int, str, int], list[float]]:
    """Most memory of one GPU in each observed job, by kind."""
    found: dict[tuple[str, int, str, int], list[float]] = defaultdict(list)
    kind = [getattr(ObservedJob, name) for name in (*KIND, "memory_mib")]
    query = select(*kind).where(ObservedJob.memory_mib.is_not(None)).order_by(ObservedJob.at_s)
    for row in session.execute(query):
        found[row.model, row.batch, row.gpu_type, row.gpus].append(row.memory_mib)
    return found


def find_value(session: Session, key: Mapping[str, Any]) -> KnownValue | None:
    """The value of this :data:`KEY`."""
    return session.scalars(select(KnownValue).filter_by(**{name: key[name] for name in KEY})).first()


def put_value(session: Session, columns: Mapping[str, Any], edit_id: int | None = None) -> KnownValue:
    """Insert or replace one value."""
    row = find_value(session, columns)
    if row is None:
        row = KnownValue(**columns, edit_id=edit_id)
        session.add(row)
    else:
        for name, value in columns.items():
            setattr(row, name, value)
        row.edit_id = edit_id
    session.flush()
    return row


Row = KnownValue | ObservedJob | KnownModel
"""What an edit may replace."""


def plain_row(row: Row) -> dict[str, Any]:
    """A row as plain data, with its table's name."""
    columns = {column.key: getattr(row, column.key) for column in row.__table__.columns}
    return {"table": row.__tablename__, **columns}


def restore_rows(session: Session, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put back what :func:`plain_row` kept."""
    kinds: dict[str, type[Row]] = {kind.__tablename__: kind for kind in (KnownValue, ObservedJob, KnownModel)}
    for row in rows:
        columns = {name: value for name, value in row.items() if name not in ("table", "id")}
        session.execute(insert(kinds[row["table"]]), [columns])


def known_model(session: Session) -> KnownModel | None:
    """The model that predicts slowdowns, if one was trained."""
    return session.scalars(select(KnownModel).order_by(KnownModel.id.desc()).limit(1)).first()


def observed_of(session: Session, kind: Mapping[str, Any], limit: int) -> Sequence[ObservedJob]:
    """The newest observed jobs of a kind."""
    query = select(ObservedJob).filter_by(**{name: kind[name] for name in KIND})
    return session.scalars(query.order_by(ObservedJob.at_s.desc(), ObservedJob.job_pk.desc()).limit(limit)).all()


def observed_among(session: Session, keys: Sequence[int]) -> set[int]:
    """Which of these jobs were observed already."""
    found: set[int] = set()
    for at in range(0, len(keys), _IDS_PER_QUERY):
        part = keys[at : at + _IDS_PER_QUERY]
        found.update(session.scalars(select(ObservedJob.job_pk).where(ObservedJob.job_pk.in_(part))))
    return found


def prune_observed(session: Session, *, before_s: float) -> None:
    """Drop what old jobs showed; the values that came of it stay."""
    session.execute(delete(ObservedJob).where(ObservedJob.at_s < before_s))


def ended_between(session: Session, from_s: float, until_s: float, limit: int) -> Sequence[Job]:
    """Jobs that ended in this time, oldest first; the newest so many."""
    query = select(Job).where(Job.end_s >= from_s, Job.end_s <= until_s)
    return list(reversed(session.scalars(query.order_by(Job.end_s.desc(), Job.id.desc()).limit(limit)).all()))


def told_of(session: Session, job_pk: int) -> RunTimeTold | None:
    """What was expected of a job's run time."""
    return session.get(RunTimeTold, job_pk)


def told_among(session: Session, keys: Sequence[int]) -> set[int]:
    """Of which of these jobs something was told."""
    found: set[int] = set()
    for at in range(0, len(keys), _IDS_PER_QUERY):
        part = keys[at : at + _IDS_PER_QUERY]
        found.update(session.scalars(select(RunTimeTold.job_pk).where(RunTimeTold.job_pk.in_(part))))
    return found


def told_and_actual(session: Session, limit: int) -> Sequence[RunTimeTold]:
    """The newest jobs that ended and of which something was told."""
    query = select(RunTimeTold).where(RunTimeTold.actual_s.is_not(None))
    return session.scalars(query.order_by(RunTimeTold.job_pk.desc()).limit(limit)).all()


def edits(session: Session, limit: int) -> Sequence[KnowledgeEdit]:
    """The newest edits, newest first."""
    return session.scalars(select(KnowledgeEdit).order_by(KnowledgeEdit.id.desc()).limit(limit)).all()


def newest_edit(session: Session) -> KnowledgeEdit | None:
    """The newest edit that stands."""
    query = select(KnowledgeEdit).where(KnowledgeEdit.undone_s.is_(None))
    return session.scalars(query.order_by(KnowledgeEdit.id.desc()).limit(1)).first()

"""Reading and writing what is known; every function takes an open session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.knowledge_schema import KnowledgeEdit, KnownModel, KnownValue, ObservedJob, RunTimeTold
from slurm_soda.daemon.store.schema import Job, Run

KIND = ("model", "batch", "gpu_type", "gpus")
KEY = (*KIND, "partner", "partner_batch", "quantity", "source")
"""Columns that name a value."""

_IDS_PER_QUERY = 500


def all_values(session: Session, quantity: str | None = None) -> Sequence[KnownValue]:
    """Every value, or those of one quantity, by what it is about."""
    columns = [getattr(KnownValue, name) for name in KEY]
    query = select(KnownValue).order_by(*columns)
    return session.scalars(query if quantity is None else query.where(KnownValue.quantity == quantity)).all()


def values_among(session: Session, models: Sequence[str]) -> Sequence[KnownValue]:
    """Every value of these models alone, and beside each other."""
    about = KnownValue.model.in_(models), KnownValue.partner.in_(["", *models])
    columns = [getattr(KnownValue, name) for name in KEY]
    return session.scalars(select(KnownValue).where(*about).order_by(*columns)).all()


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


class PastRun(NamedTuple):
    """What an ended job tells of run times."""

    user: str
    gpus: int
    partition: str
    name: str
    hints: dict[str, str]
    run_s: float
    """Over all its runs."""


def past_runs(session: Session, states: Sequence[str], until_s: float, limit: int) -> list[PastRun]:
    """The newest so many jobs that had ended in one of these states by then, in the order in which they ended."""
    newest = (
        select(Job.id)
        .where(Job.end_s <= until_s, Job.state.in_(states))
        .order_by(Job.end_s.desc(), Job.id.desc())
        .limit(limit)
        .subquery()
    )
    ran = (
        select(Run.job_pk, func.sum(Run.end_s - Run.start_s).label("run_s"))
        .join(newest, newest.c.id == Run.job_pk)
        .where(Run.end_s.is_not(None))
        .group_by(Run.job_pk)
        .subquery()
    )
    query = select(Job.user, Job.gpus, Job.partition, Job.name, Job.hints, ran.c.run_s)
    rows = session.execute(query.join(ran, ran.c.job_pk == Job.id).order_by(Job.end_s, Job.id))
    return [PastRun(user, gpus, partition, name, hints, run_s) for user, gpus, partition, name, hints, run_s in rows]


def ended_keys(session: Session, from_s: float, until_s: float, limit: int) -> Sequence[int]:
    """Keys of the jobs that ended in this time, newest first; so many at most."""
    query = select(Job.id).where(Job.end_s >= from_s, Job.end_s <= until_s)
    return session.scalars(query.order_by(Job.end_s.desc(), Job.id.desc()).limit(limit)).all()


def jobs_by_end(session: Session, keys: Sequence[int]) -> list[Job]:
    """These ended jobs, in the order in which they ended."""
    found: list[Job] = []
    for at in range(0, len(keys), _IDS_PER_QUERY):
        found += session.scalars(select(Job).where(Job.id.in_(keys[at : at + _IDS_PER_QUERY])))
    return sorted(found, key=lambda job: (job.end_s or 0.0, job.id))


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

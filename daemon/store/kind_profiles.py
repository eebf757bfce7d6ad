"""Reading and writing what is known; every function takes an open session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, delete, func, insert, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.queries import never_shared
from slurm_soda.daemon.store.tables.kind_profiles import (
    ObservedJob,
    ObservedPreemption,
    ProfileEdit,
    ProfileValueRow,
    RunTimePrediction,
    StoredSlowdownModel,
)
from slurm_soda.daemon.store.tables.progress import ObservedPair
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun

KIND_COLUMNS = ("model", "batch", "gpu_type", "gpus")
VALUE_KEY_COLUMNS = (*KIND_COLUMNS, "partner", "partner_batch", "quantity", "source", "owner")
"""Columns that name a value."""


def all_values(session: Session, quantity: str | None = None) -> Sequence[Row[Any]]:
    """Every value, or those of one quantity, by what it is about: rows with the columns of :class:`ProfileValueRow`, as
    tens of thousands of its objects cost seconds.
    """
    order = [getattr(ProfileValueRow, name) for name in VALUE_KEY_COLUMNS]
    query = select(*ProfileValueRow.__table__.columns).order_by(*order)
    return session.execute(query if quantity is None else query.where(ProfileValueRow.quantity == quantity)).all()


def fingerprint(session: Session) -> tuple[Any, ...]:
    """Another one whenever values or the slowdown model are others."""
    row = ProfileValueRow
    totals = (func.sum(column) for column in (row.value, row.error, row.observations, row.at_s))
    values = session.execute(select(func.count(), func.max(row.id), func.max(row.at_s), *totals)).one()
    model = session.execute(select(func.max(StoredSlowdownModel.id), func.max(StoredSlowdownModel.at_s))).one()
    return (*values, *model)


def values_of_models(session: Session, models: Sequence[str]) -> Sequence[ProfileValueRow]:
    """Every value of these models alone, and beside each other."""
    about = ProfileValueRow.model.in_(models), ProfileValueRow.partner.in_(["", *models])
    columns = [getattr(ProfileValueRow, name) for name in VALUE_KEY_COLUMNS]
    return session.scalars(select(ProfileValueRow).where(*about).order_by(*columns)).all()


def find_value(session: Session, key: Mapping[str, Any]) -> ProfileValueRow | None:
    """The value of this :data:`VALUE_KEY_COLUMNS`."""
    return session.scalars(select(ProfileValueRow).filter_by(**{name: key[name] for name in VALUE_KEY_COLUMNS})).first()


def owners_values(session: Session, about: Mapping[str, Any], quantity: str, source: int) -> Sequence[ProfileValueRow]:
    """What each owner's own jobs of a kind show, beside the partner that ``about`` names, or alone."""
    columns = {"partner": "", "partner_batch": 0, **about}
    query = select(ProfileValueRow).filter_by(**columns, quantity=quantity, source=source)
    return session.scalars(query.where(ProfileValueRow.owner != "").order_by(ProfileValueRow.owner)).all()


def put_value(session: Session, columns: Mapping[str, Any], edit_id: int | None = None) -> ProfileValueRow:
    """Insert or replace one value."""
    row = find_value(session, columns)
    if row is None:
        row = ProfileValueRow(**columns, edit_id=edit_id)
        session.add(row)
    else:
        for name, value in columns.items():
            setattr(row, name, value)
        row.edit_id = edit_id
    session.flush()
    return row


UndoableRow = ProfileValueRow | ObservedJob | StoredSlowdownModel
"""What an edit may replace."""


def row_to_dict(row: UndoableRow) -> dict[str, Any]:
    """A row as plain data, with its table's name."""
    columns = {column.key: getattr(row, column.key) for column in row.__table__.columns}
    return {"table": row.__tablename__, **columns}


def restore_rows(session: Session, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put back what :func:`row_to_dict` kept."""
    kinds: dict[str, type[UndoableRow]] = {
        kind.__tablename__: kind for kind in (ProfileValueRow, ObservedJob, StoredSlowdownModel)
    }
    for row in rows:
        columns = {name: value for name, value in row.items() if name not in ("table", "id")}
        session.execute(insert(kinds[row["table"]]), [columns])


def stored_slowdown_model(session: Session) -> StoredSlowdownModel | None:
    """The model that predicts slowdowns, if one was trained."""
    return session.scalars(select(StoredSlowdownModel).order_by(StoredSlowdownModel.id.desc()).limit(1)).first()


def observed_jobs_of(session: Session, kind: Mapping[str, Any], owner: str, limit: int) -> Sequence[ObservedJob]:
    """The newest observed jobs of a kind that one owner ran."""
    query = select(ObservedJob).filter_by(**{name: kind[name] for name in KIND_COLUMNS})
    query = query.join(Job, Job.id == ObservedJob.job_pk).where(Job.user == owner)
    return session.scalars(query.order_by(ObservedJob.at_s.desc(), ObservedJob.job_pk.desc()).limit(limit)).all()


def already_observed(session: Session, keys: Sequence[int]) -> set[int]:
    """Which of these jobs were observed already."""
    found: set[int] = set()
    for part in split_list(keys):
        found.update(session.scalars(select(ObservedJob.job_pk).where(ObservedJob.job_pk.in_(part))))
    return found


def prune_observed(session: Session, *, before_s: float) -> None:
    """Drop what old jobs showed; the values that came of it stay."""
    for table in (ObservedJob, ObservedPair, ObservedPreemption):
        session.execute(delete(table).where(table.at_s < before_s))


class PastRunTime(NamedTuple):
    """What an ended job tells of run times."""

    key: int
    user: str
    gpus: int
    partition: str
    name: str
    hints: dict[str, str]
    time_limit_s: float | None
    run_s: float
    """Over all its runs."""


def past_run_times(
    session: Session, states: Collection[str], until_s: float, limit: int, per_owner: int
) -> list[PastRunTime]:
    """The newest so many jobs, and of one owner, that had ended in one of these states by then, in the order in which they
    ended; those among them left out that ever shared a GPU.
    """
    place = func.row_number().over(partition_by=Job.user, order_by=(Job.end_s.desc(), Job.id.desc())).label("place")
    ended = select(Job.id, Job.end_s, place).where(Job.end_s <= until_s, Job.state.in_(states)).subquery()
    newest = (
        select(ended.c.id)
        .where(ended.c.place <= per_owner)
        .order_by(ended.c.end_s.desc(), ended.c.id.desc())
        .limit(limit)
        .subquery()
    )
    ran = (
        select(JobRun.job_pk, func.sum(JobRun.end_s - JobRun.start_s).label("run_s"))
        .join(newest, newest.c.id == JobRun.job_pk)
        .where(JobRun.end_s.is_not(None))
        .group_by(JobRun.job_pk)
        .having(never_shared())
        .subquery()
    )
    query = select(Job.id, Job.user, Job.gpus, Job.partition, Job.name, Job.hints, Job.time_limit_s, ran.c.run_s)
    rows = session.execute(query.join(ran, ran.c.job_pk == Job.id).order_by(Job.end_s, Job.id))
    return [PastRunTime(*row) for row in rows]


def oldest_end_s(session: Session, states: Collection[str], until_s: float) -> float | None:
    """When the first of the jobs had ended that ran and had ended in one of these states by then; ``None``: none had.

    A job that never ran may have its submission for its end, and one that was requeued may have run long before.
    """
    ran = select(JobRun.id).where(JobRun.job_pk == Job.id, JobRun.end_s.is_not(None)).exists()
    return session.scalar(select(func.min(Job.end_s)).where(Job.end_s <= until_s, Job.state.in_(states), ran))


def unended_job_ids(session: Session) -> set[int]:
    """Ids of the jobs of whose end the store does not know."""
    return set(session.scalars(select(Job.job_id).where(Job.end_s.is_(None))))


def ended_keys(session: Session, from_s: float, until_s: float, limit: int) -> Sequence[int]:
    """Keys of the jobs that ended in this time, newest first; so many at most."""
    query = select(Job.id).where(Job.end_s >= from_s, Job.end_s <= until_s)
    return session.scalars(query.order_by(Job.end_s.desc(), Job.id.desc()).limit(limit)).all()


def ended_among(session: Session, keys: Sequence[int], until_s: float) -> list[int]:
    """Which of these jobs had ended by then, as far as the store knows."""
    found: list[int] = []
    for part in split_list(keys):
        found += session.scalars(select(Job.id).where(Job.id.in_(part), Job.end_s <= until_s))
    return found


def jobs_by_end(session: Session, keys: Sequence[int], until_s: float) -> list[Job]:
    """Those of these jobs that had ended by then, in the order in which they ended."""
    found: list[Job] = []
    for part in split_list(keys):
        found += session.scalars(select(Job).where(Job.id.in_(part), Job.end_s <= until_s))
    return sorted(found, key=lambda job: (job.end_s or 0.0, job.id))


def run_time_prediction_of(session: Session, job_pk: int) -> RunTimePrediction | None:
    """What was expected of a job's run time."""
    return session.get(RunTimePrediction, job_pk)


def already_predicted(session: Session, keys: Sequence[int]) -> set[int]:
    """Of which of these jobs a run time was predicted."""
    found: set[int] = set()
    for part in split_list(keys):
        found.update(session.scalars(select(RunTimePrediction.job_pk).where(RunTimePrediction.job_pk.in_(part))))
    return found


def predictions_with_run_times(session: Session, limit: int) -> Sequence[RunTimePrediction]:
    """The newest predictions for jobs that have ended."""
    query = select(RunTimePrediction).where(RunTimePrediction.actual_s.is_not(None))
    return session.scalars(query.order_by(RunTimePrediction.job_pk.desc()).limit(limit)).all()


def newest_edits(session: Session, limit: int) -> Sequence[ProfileEdit]:
    """The newest edits, newest first."""
    return session.scalars(select(ProfileEdit).order_by(ProfileEdit.id.desc()).limit(limit)).all()


def newest_standing_edit(session: Session) -> ProfileEdit | None:
    """The newest edit that stands."""
    query = select(ProfileEdit).where(ProfileEdit.undone_s.is_(None))
    return session.scalars(query.order_by(ProfileEdit.id.desc()).limit(1)).first()

"""Reading and writing forecasts of starts; every function takes an open session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import Cycle, Job, JobRun
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart, StartForecastRow
from slurm_soda.policies.expected_starts.calibration import WINDOW, IntervalScore, StartOutcome

Interval = tuple[float, float, float]
"""Beginning, middle and end; infinite: perhaps never."""


class KeptForecast(NamedTuple):
    """A forecast of a job that had not started yet."""

    row_id: int
    job_pk: int
    at_s: float
    drawn_s: Interval
    calibrated_s: Interval

    def outcome(self, start_s: float) -> StartOutcome:
        """What came of it, or is known of it by now."""
        return StartOutcome(self.drawn_s, self.calibrated_s, max(start_s - self.at_s, 0.0))


def open_forecasts(session: Session) -> list[KeptForecast]:
    """All forecasts whose outcome is not known."""
    rows = session.scalars(select(StartForecastRow).where(StartForecastRow.started_s.is_(None)))
    return [_kept(row) for row in rows]


def newest_outcomes(session: Session, limit: int = WINDOW) -> list[StartOutcome]:
    """The last outcomes, the newest last."""
    query = select(StartForecastRow).where(StartForecastRow.started_s.is_not(None))
    rows = session.scalars(query.order_by(StartForecastRow.started_s.desc(), StartForecastRow.id.desc()).limit(limit))
    return [_kept(row).outcome(row.started_s or 0.0) for row in reversed(rows.all())]


def score_of_intervals(session: Session) -> IntervalScore:
    """How often the last intervals were right; those of jobs that waited beyond their end at the last cycle were not."""
    sides = [one.side for one in newest_outcomes(session)]
    now_s = session.scalar(select(Cycle.started_s).order_by(Cycle.id.desc()).limit(1)) or 0.0
    late = sum(now_s > one.at_s + one.calibrated_s[2] for one in open_forecasts(session))
    return IntervalScore.of([*sides, *[1] * late][-WINDOW:])


def keep_forecasts(session: Session, made: Sequence[KeptForecast]) -> list[KeptForecast]:
    """Add forecasts whose ``row_id`` is 0; gives them with their keys."""
    rows = [
        StartForecastRow(
            job_pk=one.job_pk,
            at_s=one.at_s,
            drawn_low_s=_stored(one.drawn_s[0]),
            drawn_median_s=_stored(one.drawn_s[1]),
            drawn_high_s=_stored(one.drawn_s[2]),
            low_s=_stored(one.calibrated_s[0]),
            median_s=_stored(one.calibrated_s[1]),
            high_s=_stored(one.calibrated_s[2]),
        )
        for one in made
    ]
    session.add_all(rows)
    session.flush()
    return [one._replace(row_id=row.id) for one, row in zip(made, rows, strict=True)]


def note_starts(session: Session, starts: Mapping[int, float]) -> None:
    """Jobs started: by the key of the forecast."""
    for row_id, start_s in starts.items():
        session.execute(update(StartForecastRow).where(StartForecastRow.id == row_id).values(started_s=start_s))


def drop_forecasts(session: Session, row_ids: Iterable[int]) -> None:
    """Forecasts of jobs that will never start tell nothing."""
    for part in split_list(list(row_ids)):
        session.execute(delete(StartForecastRow).where(StartForecastRow.id.in_(part)))


def starts_of(session: Session, job_pks: Sequence[int]) -> dict[int, list[float]]:
    """Starts of jobs' runs by the key of the job, in their order; none of one that waits for its first."""
    found: dict[int, list[float]] = {}
    for part in split_list(job_pks):
        query = select(JobRun.job_pk, JobRun.start_s).where(JobRun.job_pk.in_(part)).order_by(JobRun.start_s)
        for job_pk, start_s in session.execute(query):
            found.setdefault(job_pk, []).append(start_s)
    return found


def ended_jobs(session: Session, job_pks: Sequence[int]) -> set[int]:
    """Which of these have ended."""
    found: set[int] = set()
    for part in split_list(job_pks):
        found.update(session.scalars(select(Job.id).where(Job.id.in_(part), Job.end_s.is_not(None))))
    return found


def expected_start_of(session: Session, job_pk: int) -> ExpectedStart | None:
    """The newest forecast of a job that waits."""
    return session.get(ExpectedStart, job_pk)


def expected_starts(session: Session) -> dict[int, Interval]:
    """All of them, in Unix seconds, by the key of the job."""
    rows = session.scalars(select(ExpectedStart))
    return {row.job_pk: (_read(row.low_s), _read(row.median_s), _read(row.high_s)) for row in rows}


def put_expected_starts(session: Session, starts: Mapping[int, Interval], gone: Iterable[int], at_s: float) -> None:
    """Write new forecasts, by the key of the job, and drop those of jobs that no longer wait."""
    for part in split_list([*starts, *gone]):
        session.execute(delete(ExpectedStart).where(ExpectedStart.job_pk.in_(part)))
    session.add_all(
        ExpectedStart(
            job_pk=job_pk, at_s=at_s, low_s=_stored(low_s), median_s=_stored(median_s), high_s=_stored(high_s)
        )
        for job_pk, (low_s, median_s, high_s) in starts.items()
    )


def _kept(row: StartForecastRow) -> KeptForecast:
    drawn = _read(row.drawn_low_s), _read(row.drawn_median_s), _read(row.drawn_high_s)
    return KeptForecast(row.id, row.job_pk, row.at_s, drawn, (_read(row.low_s), _read(row.median_s), _read(row.high_s)))


def _stored(time_s: float) -> float | None:
    return time_s if math.isfinite(time_s) else None


def _read(time_s: float | None) -> float:
    return math.inf if time_s is None else time_s

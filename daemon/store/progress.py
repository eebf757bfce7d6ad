"""What jobs tell of their progress, and how fast they are alone and beside others.

Every reading of a run is counted for the co-runners that it had since the reading before, if these were the same all the
time: intervals in which somebody came or went are left out. They count from when all of them iterate, as far as they tell.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.queries import CLOCK_SLACK_S, belongs_to, find_jobs
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.wire.records import ReportedProgress

K = TypeVar("K")


class RunId(NamedTuple):
    """A run of a job, for as long as Slurm has the job."""

    job_id: int
    restart: int


@dataclass(frozen=True, slots=True)
class CoRunners:
    """Who is on a run's GPUs with it."""

    others: tuple[RunId, ...]
    """Ascending; none: it is alone."""
    since_s: float
    """When it was first seen."""
    mps: bool = False
    """All of them under MPS with it; else they take turns."""

    @property
    def name(self) -> str:
        """As the store has it."""
        return co_runners_name(self.others)


def co_runners_name(others: Iterable[RunId]) -> str:
    """Runs as ``12.0+15.1``."""
    return "+".join(f"{run.job_id}.{run.restart}" for run in sorted(others))


def runs_of_name(name: str) -> tuple[RunId, ...]:
    """The inverse of :func:`co_runners_name`."""
    parts = (run.partition(".") for run in name.split("+") if run)
    return tuple(RunId(int(job_id), int(restart)) for job_id, _, restart in parts)


def take_progress(session: Session, told: Sequence[ReportedProgress], co_runners_of: Mapping[RunId, CoRunners]) -> None:
    """Take in what runs say now, and count it for the co-runners that each of them has."""
    for one in told:
        row = session.scalars(
            select(JobProgressRow).filter_by(job_id=one.job_id, restart=one.restart, node=one.node, first_s=one.first_s)
        ).first()
        if row is None:
            session.add(_first_row(one))
            session.flush()
            continue
        if one.at_s < row.at_s and one.clock_s <= row.clock_s:
            continue  # told before
        co_runners = co_runners_of.get(RunId(one.job_id, one.restart))
        if co_runners is not None:
            _count(session, row, one, co_runners)
        _take(row, one)
        session.flush()


def _first_row(told: ReportedProgress) -> JobProgressRow:
    return JobProgressRow(
        job_id=told.job_id,
        restart=told.restart,
        node=told.node,
        first_s=told.first_s,
        began_s=told.at_s,
        began_iterations=told.iterations,
        at_s=told.at_s,
        clock_s=told.clock_s,
        idle_s=told.idle_s,
        iterations=told.iterations,
        total=told.total,
        batch=told.batch,
        saved=told.saved,
        saves=0,
    )


def _take(row: JobProgressRow, told: ReportedProgress) -> None:
    if told.saved > row.saved:
        row.saves, row.saved_s = row.saves + 1, told.at_s
    row.began_iterations = min(row.began_iterations, told.iterations)
    row.at_s, row.clock_s, row.idle_s = told.at_s, told.clock_s, told.idle_s
    row.iterations, row.total, row.batch, row.saved = told.iterations, told.total, told.batch, told.saved


def _count(session: Session, before: JobProgressRow, told: ReportedProgress, co_runners: CoRunners) -> None:
    """Add what was done since the reading before, unless somebody came after it."""
    iterations, clock_s = told.iterations - before.iterations, told.clock_s - before.clock_s
    begins_s = shared_since_s(session, co_runners)
    if iterations <= 0 or clock_s <= 0 or before.at_s < begins_s:
        return  # counts that fall are another training's, or a lie
    key = {"job_id": told.job_id, "restart": told.restart, "first_s": told.first_s, "co_runners": co_runners.name}
    pace = session.scalars(select(JobPaceRow).filter_by(**key)).first()
    if pace is None:
        pace = JobPaceRow(**key, began_s=before.at_s, iterations=0.0, clock_s=0.0, mps=False)
        session.add(pace)
    elif pace.began_s < begins_s:  # one of them was still loading, and has begun since
        pace.began_s, pace.iterations, pace.clock_s = before.at_s, 0.0, 0.0
    # A process is under MPS from its first call of CUDA on, or never: what was told once stays true.
    pace.mps, pace.at_s = pace.mps or co_runners.mps, told.at_s
    pace.iterations, pace.clock_s = pace.iterations + iterations, pace.clock_s + clock_s


def shared_since_s(session: Session, co_runners: CoRunners) -> float:
    """When all of them were iterating, as far as they tell."""
    return shared_since_of(session, {co_runners.name: co_runners})[co_runners.name]


def shared_since_of(session: Session, co_runners_of: Mapping[K, CoRunners]) -> dict[K, float]:
    """:func:`shared_since_s` of many, with one question for all."""
    job_ids = {other.job_id for co_runners in co_runners_of.values() for other in co_runners.others}
    told: dict[RunId, list[JobProgressRow]] = {}
    for part in split_list(sorted(job_ids)):
        for row in session.scalars(select(JobProgressRow).where(JobProgressRow.job_id.in_(part))):
            told.setdefault(RunId(row.job_id, row.restart), []).append(row)
    found: dict[K, float] = {}
    for key, one in co_runners_of.items():
        # A job of the same id from before a reset of Slurm is none of them.
        rows = (row for other in one.others for row in told.get(other, ()) if row.at_s >= one.since_s)
        found[key] = max([one.since_s, *(row.began_s for row in rows)])
    return found


def progress_of(session: Session, job: Job) -> Sequence[JobProgressRow]:
    """What the job's runs said, first to last."""
    query = select(JobProgressRow).where(JobProgressRow.job_id == job.job_id)
    rows = session.scalars(query.order_by(JobProgressRow.restart, JobProgressRow.node, JobProgressRow.first_s))
    return [row for row in rows if belongs_to(row.first_s, job)]


def paces_of(session: Session, job: Job) -> Sequence[JobPaceRow]:
    """How fast the job's runs were, alone and beside others, first to last."""
    query = select(JobPaceRow).where(JobPaceRow.job_id == job.job_id)
    rows = session.scalars(query.order_by(JobPaceRow.restart, JobPaceRow.began_s, JobPaceRow.id))
    return [row for row in rows if belongs_to(row.first_s, job)]


def progress_of_runs(
    session: Session, runs: Collection[RunId]
) -> tuple[dict[RunId, JobProgressRow], dict[int, list[JobPaceRow]]]:
    """What these runs said last, and by job id the paces of all runs of those that said something.

    Of jobs that had the id before a reset of Slurm nothing counts.
    """
    newest = newest_progress(session, runs)
    job_ids = [run.job_id for run in newest]
    begin_s = {job.job_id: job.submit_s - CLOCK_SLACK_S for job in find_jobs(session, job_ids) if job.end_s is None}
    told = {run: row for run, row in newest.items() if row.first_s >= begin_s.get(run.job_id, math.inf)}
    paces = {
        job_id: [row for row in rows if row.first_s >= begin_s[job_id]]
        for job_id, rows in paces_by_job(session, [run.job_id for run in told]).items()
    }
    return told, paces


def newest_progress(session: Session, runs: Iterable[RunId]) -> dict[RunId, JobProgressRow]:
    """What these runs said last; of several nodes the one that is farthest."""
    found: dict[RunId, JobProgressRow] = {}
    restarts = {run.job_id: run.restart for run in runs}
    for part in split_list(list(restarts)):
        for row in session.scalars(select(JobProgressRow).where(JobProgressRow.job_id.in_(part))):
            run = RunId(row.job_id, row.restart)
            if row.restart == restarts[row.job_id]:
                found[run] = max(found.get(run, row), row, key=lambda one: (one.first_s, one.iterations))
    return found


def paces_by_job(session: Session, job_ids: Sequence[int]) -> dict[int, list[JobPaceRow]]:
    """Paces of all runs of these jobs."""
    found: dict[int, list[JobPaceRow]] = {}
    for part in split_list(job_ids):
        for row in session.scalars(select(JobPaceRow).where(JobPaceRow.job_id.in_(part))):
            found.setdefault(row.job_id, []).append(row)
    return found


def jobs_with_co_runners(session: Session, job_ids: Sequence[int]) -> set[int]:
    """Which of these jobs were ever beside others while they told their progress."""
    found: set[int] = set()
    for part in split_list(job_ids):
        query = select(JobPaceRow.job_id).where(JobPaceRow.job_id.in_(part), JobPaceRow.co_runners != "")
        found.update(session.scalars(query))
    return found

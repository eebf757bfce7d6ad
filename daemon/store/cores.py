"""Measurements and fits of cores in the store: taken from reports, found again for the owner's next job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cores_schema import CoreFitted, CoreMeasured, CoreStart
from slurm_soda.daemon.store.queries import CLOCK_SLACK_S
from slurm_soda.daemon.store.schema import Job, NodeEvent
from slurm_soda.policies.cores.gang import CUT_SHORT
from slurm_soda.policies.cores.start import PastFit
from slurm_soda.wire.cores import CoreFit, CoreMeasurement

TELLING = ("best_fit", "measured", "kept")
"""Ends of a search that say how many cores the job needs."""

NEWEST_FITS = 500
"""Jobs of one owner that a start looks back to."""

_IDS_PER_QUERY = 500


def take_measurement(session: Session, record: CoreMeasurement) -> bool:
    """Keep a measurement; false for one that is here already."""
    values = asdict(record)
    values["most_cores"] = values.pop("limit")
    key = {name: values[name] for name in ("job_id", "restart", "node", "search", "step", "at_s")}
    if session.scalar(select(CoreMeasured.id).filter_by(**key)) is not None:
        return False
    session.add(CoreMeasured(**values))
    session.flush()
    return True


def take_fit(session: Session, record: CoreFit) -> bool:
    """Keep a fit with what is known of its job; false for one that is here already."""
    values = asdict(record)
    values["most_cores"] = values.pop("limit")
    key = {name: values[name] for name in ("job_id", "restart", "node", "search", "at_s")}
    if session.scalar(select(CoreFitted.id).filter_by(**key)) is not None:
        return False
    session.add(CoreFitted(**(values | {"reason": sound(record.reason, 32)}), **_of_job(session, record)))
    session.flush()
    return True


def _of_job(session: Session, record: CoreFit) -> dict[str, Any]:
    """Owner, hints and request: the cycles know them, and the prolog told most of them."""
    job = job_at(session, record.job_id, record.at_s)
    opened = opening(session, record.job_id, record.restart, record.node, record.at_s)
    hints = dict(job.hints) if job is not None else _told(opened, "hints", {})
    return {
        "submit_s": None if job is None else job.submit_s,
        "user": sound(job.user if job is not None else str(_told(opened, "user", "")), 255),
        "category": sound(str(hints.get("category", "")), 16),
        "model": sound(str(hints.get("model", "")), 64),
        "hints": hints,
        "nodes": int(_told(opened, "nodes", 1 if job is None else job.nodes)),
        "asked_cores": None if job is None else asked_cores(session, job),
    }


def sound(text: str, most: int) -> str:
    """Text that every database takes: undecodable bytes spelled out, and no longer than its column."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")[:most]


def _told(opened: NodeEvent | None, key: str, otherwise: Any) -> Any:
    return otherwise if opened is None else opened.record.get(key, otherwise)


def job_at(session: Session, job_id: int, at_s: float) -> Job | None:
    """The job that had this id at an instant of some node's clock."""
    query = select(Job).where(Job.job_id == job_id, Job.submit_s <= at_s + CLOCK_SLACK_S)
    return session.scalars(query.order_by(Job.submit_s.desc()).limit(1)).first()


def opening(session: Session, job_id: int, restart: int, node: str, at_s: float) -> NodeEvent | None:
    """The prolog's record of the run that was on a node at an instant of that node's clock."""
    query = select(NodeEvent).filter_by(kind="open", job_id=job_id, restart=restart, node=node)
    return session.scalars(query.where(NodeEvent.at_s <= at_s).order_by(NodeEvent.at_s.desc()).limit(1)).first()


def asked_cores(session: Session, job: Job) -> int:
    """Cores per node that the user asked for, whatever we made of them."""
    asked = session.scalar(select(CoreStart.asked_cores).filter_by(job_id=job.job_id, submit_s=job.submit_s))
    return -(-job.cpus // max(job.nodes, 1)) if asked is None else asked


def past_fits(session: Session, user: str, limit: int = NEWEST_FITS) -> list[PastFit]:
    """What searches found for the newest jobs of an owner, newest first: one fit a job, that of its last phase."""
    query = (
        select(CoreFitted)
        .where(CoreFitted.user == user, CoreFitted.reason.in_(TELLING), CoreFitted.cores > 0, CoreFitted.gpus > 0)
        .order_by(CoreFitted.at_s.desc(), CoreFitted.id.desc())
        .limit(limit)
    )
    newest: dict[tuple[int, float | None], CoreFitted] = {}
    for row in session.scalars(query):
        newest.setdefault((row.job_id, row.submit_s), row)
    return [PastFit(row.category or None, row.model or None, row.cores, row.gpus) for row in newest.values()]


def newest_fit(session: Session) -> int:
    """Key of the newest fit, 0 without any: a change says that histories must be read again."""
    return session.scalar(select(func.max(CoreFitted.id))) or 0


def users_of_fits(session: Session, *, after: int) -> Sequence[str]:
    """Owners of fits with a key above ``after``."""
    return session.scalars(select(CoreFitted.user).where(CoreFitted.id > after).distinct()).all()


def measurements_of(
    session: Session, job_id: int, since_s: float, restart: int | None = None, *, newest: int = 0
) -> Sequence[CoreMeasured]:
    """What was measured of a job on all its nodes since an instant, by run, search, step and time; or of one run.

    ``newest`` keeps so many, 0 all.
    """
    query = select(CoreMeasured).where(CoreMeasured.job_id == job_id, CoreMeasured.at_s >= since_s - CLOCK_SLACK_S)
    if restart is not None:
        query = query.where(CoreMeasured.restart == restart)
    if newest:
        query = query.order_by(CoreMeasured.at_s.desc(), CoreMeasured.id.desc()).limit(newest)
    rows = session.scalars(query).all()
    return sorted(rows, key=lambda row: (row.restart, row.search, row.step, row.at_s, row.id))


def fits_of(session: Session, job_id: int, submit_s: float) -> Sequence[CoreFitted]:
    """How a job's searches ended, by time."""
    query = select(CoreFitted).filter_by(job_id=job_id, submit_s=submit_s)
    return session.scalars(query.order_by(CoreFitted.at_s, CoreFitted.id)).all()


def was_cut_short(session: Session, run: tuple[int, int], search: int, since_s: float) -> bool:
    """Whether a node of this run (job id, restart) gave this search up."""
    job_id, restart = run
    query = select(CoreFitted.id).filter_by(job_id=job_id, restart=restart, search=search, reason=CUT_SHORT)
    return session.scalar(query.where(CoreFitted.at_s >= since_s - CLOCK_SLACK_S).limit(1)) is not None


def save_starts(session: Session, starts: Sequence[CoreStart]) -> None:
    """Keep the newest thoughts about waiting jobs."""
    known = {(row.job_id, row.submit_s): row for row in starts_of(session, [start.job_id for start in starts])}
    for start in starts:
        row = known.get((start.job_id, start.submit_s))
        if row is None:
            row = CoreStart(job_id=start.job_id, submit_s=start.submit_s)
            session.add(row)
        for name in ("at_s", "asked_cores", "cores", "source", "left_alone"):
            setattr(row, name, getattr(start, name))
    session.flush()


def start_of(session: Session, job_id: int, submit_s: float) -> CoreStart | None:
    """The newest thought about one job."""
    return session.scalars(select(CoreStart).filter_by(job_id=job_id, submit_s=submit_s)).first()


def starts_of(session: Session, job_ids: Sequence[int]) -> list[CoreStart]:
    """Thoughts about jobs with these ids."""
    rows: list[CoreStart] = []
    for at in range(0, len(job_ids), _IDS_PER_QUERY):
        part = job_ids[at : at + _IDS_PER_QUERY]
        rows += session.scalars(select(CoreStart).where(CoreStart.job_id.in_(part)))
    return rows


def prune_measurements(session: Session, *, before_s: float) -> None:
    """Drop old measurements; the fits that they led to stay."""
    session.execute(delete(CoreMeasured).where(CoreMeasured.at_s < before_s))

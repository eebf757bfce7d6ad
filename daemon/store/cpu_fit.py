"""Measurements and fits of cores in the store: taken from reports, found again for the owner's next job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, func, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.queries import CLOCK_SLACK_S
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow, CpuProposalRow
from slurm_soda.daemon.store.tables.scheduling import Action, Job, JobRun, NodeEvent
from slurm_soda.policies.cpu_fit.core_search import CONCLUSIVE, SearchRules
from slurm_soda.policies.cpu_fit.multi_node_search import CUT_SHORT
from slurm_soda.policies.cpu_fit.start_cores import PastFit
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement

REASONS_WITH_BEST_CORES = tuple(reason.name.lower() for reason in CONCLUSIVE)
"""Ends of a search that say how many cores the job needs, as reports name them."""

NEWEST_FITS = 500
"""Jobs of one owner that a start looks back to."""

_IDS_PER_QUERY = 500


def add_measurement(session: Session, record: CoreMeasurement) -> bool:
    """Keep a measurement; false for one that is here already."""
    values = asdict(record)
    values["most_cores"] = values.pop("limit")
    key = {name: values[name] for name in ("job_id", "restart", "node", "search", "step", "at_s")}
    if session.scalar(select(CpuMeasurementRow.id).filter_by(**key)) is not None:
        return False
    session.add(CpuMeasurementRow(**values))
    session.flush()
    return True


def add_fit(session: Session, record: CoreFit) -> bool:
    """Keep a fit with what is known of its job; false for one that is here already."""
    values = asdict(record)
    values["most_cores"] = values.pop("limit")
    key = {name: values[name] for name in ("job_id", "restart", "node", "search", "at_s")}
    if session.scalar(select(CpuFitRow.id).filter_by(**key)) is not None:
        return False
    session.add(CpuFitRow(**(values | {"reason": storable_text(record.reason, 32)}), **_job_columns(session, record)))
    session.flush()
    return True


def _job_columns(session: Session, record: CoreFit) -> dict[str, Any]:
    """Owner, hints and request: the cycles know them, and the prolog told most of them."""
    job = find_job_at(session, record.job_id, record.at_s)
    opened = prolog_record(session, record.job_id, record.restart, record.node, record.at_s)
    hints = dict(job.hints) if job is not None else _prolog_value(opened, "hints", {})
    return {
        "submit_s": None if job is None else job.submit_s,
        "user": job.user if job is not None else str(_prolog_value(opened, "user", "")),
        "category": storable_text(str(hints.get("category", "")), 16),
        "model": storable_text(str(hints.get("model", "")), 64),
        "hints": hints,
        "nodes": int(_prolog_value(opened, "nodes", 0) or (1 if job is None else job.nodes)),
        "asked_cores": None if job is None else asked_cores(session, job),
    }


def storable_text(text: str, most: int) -> str:
    """Text that every database takes: undecodable bytes spelled out, and no longer than its column."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")[:most]


def _prolog_value(opened: NodeEvent | None, key: str, otherwise: Any) -> Any:
    return otherwise if opened is None else opened.record.get(key, otherwise)


def find_job_at(session: Session, job_id: int, at_s: float) -> Job | None:
    """The job that had this id at an instant of some node's clock."""
    query = select(Job).where(Job.job_id == job_id, Job.submit_s <= at_s + CLOCK_SLACK_S)
    return session.scalars(query.order_by(Job.submit_s.desc()).limit(1)).first()


def prolog_record(session: Session, job_id: int, restart: int, node: str, at_s: float) -> NodeEvent | None:
    """The prolog's record of the run that was on a node at an instant of that node's clock."""
    query = select(NodeEvent).filter_by(kind="open", job_id=job_id, restart=restart, node=node)
    return session.scalars(query.where(NodeEvent.at_s <= at_s).order_by(NodeEvent.at_s.desc()).limit(1)).first()


def asked_cores(session: Session, job: Job) -> int:
    """Cores per node that the user asked for, whatever we made of them."""
    asked = session.scalar(select(CpuProposalRow.asked_cores).filter_by(job_id=job.job_id, submit_s=job.submit_s))
    return -(-job.cpus // max(job.nodes, 1)) if asked is None else asked


def past_fits(session: Session, user: str, limit: int = NEWEST_FITS) -> list[PastFit]:
    """What searches found for the newest jobs of an owner, newest first: one fit a job, that of its last phase. Runs that
    shared a GPU say nothing of the cores that such jobs need.
    """
    query = (
        select(CpuFitRow)
        .where(
            CpuFitRow.user == user,
            CpuFitRow.reason.in_(REASONS_WITH_BEST_CORES),
            CpuFitRow.cores > 0,
            CpuFitRow.gpus > 0,
            ~is_fit_of_shared_run(),
        )
        .order_by(CpuFitRow.at_s.desc(), CpuFitRow.id.desc())
        .limit(limit)
    )
    newest: dict[tuple[int, float | None], CpuFitRow] = {}
    for row in session.scalars(query):
        newest.setdefault((row.job_id, row.submit_s), row)
    return [
        PastFit(row.category or None, row.model or None, row.cores, row.gpus, all_it_had=_could_use_more(row))
        for row in newest.values()
    ]


def is_fit_of_job() -> ColumnElement[bool]:
    """A fit is of a job by its time: the submission beside it may be unknown, or corrected since."""
    over_s = func.coalesce(Job.end_s + CLOCK_SLACK_S, CpuFitRow.at_s)
    return and_(CpuFitRow.at_s >= Job.submit_s - CLOCK_SLACK_S, CpuFitRow.at_s <= over_s)


def is_fit_of_shared_run() -> ColumnElement[bool]:
    """Whether the run that a fit is of shared a GPU."""
    of_run = and_(JobRun.job_pk == Job.id, JobRun.restart == CpuFitRow.restart, JobRun.shared)
    found = select(JobRun.id).join(Job, of_run).where(Job.job_id == CpuFitRow.job_id, is_fit_of_job())
    return found.correlate(CpuFitRow).exists()


def _could_use_more(fit: CpuFitRow) -> bool:
    return fit.cores >= fit.most_cores and fit.utilisation_ratio < 1.0 - SearchRules().tolerance_ratio


def newest_fit(session: Session) -> int:
    """Key of the newest fit, 0 without any: a change says that histories must be read again."""
    return session.scalar(select(func.max(CpuFitRow.id))) or 0


def users_of_fits(session: Session, *, after: int) -> Sequence[str]:
    """Owners of fits with a key above ``after``."""
    return session.scalars(select(CpuFitRow.user).where(CpuFitRow.id > after).distinct()).all()


def measurements_of(
    session: Session, job_id: int, since_s: float, restart: int | None = None, *, newest: int = 0
) -> Sequence[CpuMeasurementRow]:
    """What was measured of a job on all its nodes since an instant, by run, search, step and time; or of one run.

    ``newest`` keeps so many, 0 all.
    """
    query = select(CpuMeasurementRow).where(
        CpuMeasurementRow.job_id == job_id, CpuMeasurementRow.at_s >= since_s - CLOCK_SLACK_S
    )
    if restart is not None:
        query = query.where(CpuMeasurementRow.restart == restart)
    if newest:
        query = query.order_by(CpuMeasurementRow.at_s.desc(), CpuMeasurementRow.id.desc()).limit(newest)
    rows = session.scalars(query).all()
    return sorted(rows, key=lambda row: (row.restart, row.search, row.step, row.at_s, row.id))


def fits_of(session: Session, job_id: int, submit_s: float) -> Sequence[CpuFitRow]:
    """How a job's searches ended, by time."""
    query = select(CpuFitRow).filter_by(job_id=job_id, submit_s=submit_s)
    return session.scalars(query.order_by(CpuFitRow.at_s, CpuFitRow.id)).all()


def search_was_given_up(session: Session, run: tuple[int, int], search: int, since_s: float) -> bool:
    """Whether a node of this run (job id, restart) gave this search up."""
    job_id, restart = run
    query = select(CpuFitRow.id).filter_by(job_id=job_id, restart=restart, search=search, reason=CUT_SHORT)
    return session.scalar(query.where(CpuFitRow.at_s >= since_s - CLOCK_SLACK_S).limit(1)) is not None


def save_proposals(session: Session, starts: Sequence[CpuProposalRow]) -> None:
    """Keep the newest CPU-fit proposals of waiting jobs."""
    known = {(row.job_id, row.submit_s): row for row in proposals_of(session, [start.job_id for start in starts])}
    for start in starts:
        row = known.get((start.job_id, start.submit_s))
        if row is None:
            row = CpuProposalRow(job_id=start.job_id, submit_s=start.submit_s)
            session.add(row)
        for name in ("at_s", "asked_cores", "cores", "source", "left_alone"):
            setattr(row, name, getattr(start, name))
    session.flush()


def proposal_of(session: Session, job_id: int, submit_s: float) -> CpuProposalRow | None:
    """The newest CPU-fit proposal for one job."""
    return session.scalars(select(CpuProposalRow).filter_by(job_id=job_id, submit_s=submit_s)).first()


def proposals_of(session: Session, job_ids: Sequence[int]) -> list[CpuProposalRow]:
    """Thoughts about jobs with these ids."""
    rows: list[CpuProposalRow] = []
    for at in range(0, len(job_ids), _IDS_PER_QUERY):
        part = job_ids[at : at + _IDS_PER_QUERY]
        rows += session.scalars(select(CpuProposalRow).where(CpuProposalRow.job_id.in_(part)))
    return rows


def newest_resizes(session: Session, submit_of: Mapping[int, float]) -> dict[int, Action]:
    """Of each job the newest change of its CPUs that reached Slurm or may have, or that Slurm refused.

    Args:
        session: reads.
        submit_of: first submission by job id.
    """
    found: dict[int, Action] = {}
    ids = list(submit_of)
    among = Action.job_id.in_(bindparam("ids", expanding=True))
    query = select(Action).where(among, Action.kind == "rewrite", Action.state != "void").order_by(Action.id)
    for at in range(0, len(ids), _IDS_PER_QUERY):
        for action in session.scalars(query, {"ids": ids[at : at + _IDS_PER_QUERY]}):
            if "NumCPUs" in action.new and action.submit_s == submit_of[action.job_id]:
                found[action.job_id] = action
    return found

"""Jobs that ran lately, as the derivation of shares wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Subquery, and_, case, func, or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.cores import TELLING
from slurm_soda.daemon.store.cores_schema import CoreFitted
from slurm_soda.daemon.store.queries import CLOCK_SLACK_S
from slurm_soda.daemon.store.schema import Job, Run
from slurm_soda.policies.arrays.history import PastJob
from slurm_soda.slurm_ext.hostlist import expand


class _Fit(NamedTuple):
    restart: int
    search: int
    node: str
    cores: int


def past_jobs(session: Session, *, since_s: float, now_s: float, gpu_types: Mapping[str, str]) -> list[PastJob]:
    """Jobs with a run that ended after ``since_s`` or still goes on, by the store's key; time before that does not count.

    Args:
        gpu_types: GPU type by node name; a job is of the type of the node where it ran last.
    """
    ran = _ran(since_s, now_s)
    rows = session.execute(
        select(Job.id, Job.gpus, Job.nodes, Job.cpus, ran.c.run_s, Run.node_names)
        .join(ran, ran.c.job_pk == Job.id)
        # Not the run that was recorded last: one that nobody saw is recorded when it is found.
        .join(Run, and_(Run.job_pk == Job.id, Run.restart == ran.c.last_restart))
        .order_by(Job.id)
    ).all()
    best = _best_cores(session, ran)
    return [
        PastJob(
            gpus=row.gpus,
            nodes=max(row.nodes, 1),
            cpus=row.cpus,
            run_s=max(row.run_s, 0.0),
            best_cores=best.get(row.id),
            gpu_type=next((gpu_types[node] for node in expand(row.node_names) if node in gpu_types), ""),
        )
        for row in rows
    ]


def _ran(since_s: float, now_s: float) -> Subquery:
    """By job how long it ran since an instant, and its last restart count."""
    # A run that sodad did not see end was over when its job was.
    until_s = func.coalesce(Run.end_s, Job.end_s, now_s)
    from_s = case((Run.start_s < since_s, since_s), else_=Run.start_s)
    unfinished = and_(Run.end_s.is_(None), or_(Job.end_s.is_(None), Job.end_s > since_s))
    return (
        select(Run.job_pk, func.sum(until_s - from_s).label("run_s"), func.max(Run.restart).label("last_restart"))
        .join(Job, Job.id == Run.job_pk)
        .where(or_(Run.end_s > since_s, unfinished))
        .group_by(Run.job_pk)
        .subquery()
    )


def _best_cores(session: Session, ran: Subquery) -> dict[int, int]:
    """Cores on each node that a job needs, by the job's key, where its newest search tells."""
    query = (
        select(Job.id, CoreFitted.restart, CoreFitted.search, CoreFitted.node, CoreFitted.cores)
        .join(ran, ran.c.job_pk == Job.id)
        .join(CoreFitted, CoreFitted.job_id == Job.job_id)
        .where(CoreFitted.reason.in_(TELLING), CoreFitted.cores > 0, _is_of())
        .order_by(Job.id, CoreFitted.restart, CoreFitted.at_s, CoreFitted.id)
    )
    by_job: dict[int, list[_Fit]] = {}
    for row in session.execute(query):
        by_job.setdefault(row.id, []).append(_Fit(row.restart, row.search, row.node, row.cores))
    return {pk: _needed(fits) for pk, fits in by_job.items()}


def _is_of() -> ColumnElement[bool]:
    """A fit is of a job by its time: the submission beside it may be unknown, or corrected since."""
    over_s = func.coalesce(Job.end_s + CLOCK_SLACK_S, CoreFitted.at_s)
    return and_(CoreFitted.at_s >= Job.submit_s - CLOCK_SLACK_S, CoreFitted.at_s <= over_s)


def _needed(fits: Sequence[_Fit]) -> int:
    """What the newest search of a job ended on, fits being given by restart and time; of its nodes the one that wants most.

    An agent that lost its records numbers its searches anew, so each node's newest fit counts alone.
    """
    last, newest = fits[-1], {fit.node: fit for fit in fits}
    return max(fit.cores for fit in newest.values() if (fit.restart, fit.search) == (last.restart, last.search))

"""What slurm-soda changed, newest first, and why: the audit log, as far as a viewer may see the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.store.tables.scheduling import Action, Job

MAX_CHANGES = 100
"""In one answer."""
MAX_OWN_JOBS = 1000
"""Of a user from whom jobs are private: changes of so many newest jobs are looked through."""


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One change of one job."""

    change_id: int
    job_id: int
    user: str
    """Empty where the store does not know the job any more; only who sees all jobs is shown that."""
    name: str
    at_s: float
    kind: str
    old: Mapping[str, str]
    new: Mapping[str, str]
    state: str
    reason: str
    error: str
    by_hand: bool


@dataclass(frozen=True, slots=True)
class ChangeExcerpt:
    """Some changes, newest first."""

    changes: Sequence[ShownChange]
    more: bool
    """There are older ones."""


def read_changes(
    session: Session, viewer: Viewer, *, before: int | None = None, limit: int = MAX_CHANGES
) -> ChangeExcerpt:
    """The newest changes of jobs that this viewer may see.

    Args:
        session: reads.
        viewer: who looks.
        before: only those older than this one, by its id.
        limit: so many at most.
    """
    of_job = (Action.job_id == Job.job_id) & (Action.submit_s == Job.submit_s)
    query = select(Action, Job.user, Job.name).join(Job, of_job, isouter=viewer.sees_all_jobs)
    visible = viewer.visible_jobs()
    if visible is not None:
        # By the index of their ids: through the changes of all others it would be a long way to the few own ones.
        own = session.scalars(select(Job.job_id).where(visible).order_by(Job.submit_s.desc()).limit(MAX_OWN_JOBS))
        query = query.where(Action.job_id.in_(own.all()), visible)
    if before is not None:
        query = query.where(Action.id < before)
    found = session.execute(query.order_by(Action.id.desc()).limit(limit + 1)).all()
    return ChangeExcerpt([shown_change(action, user, name) for action, user, name in found[:limit]], len(found) > limit)


def shown_change(action: Action, user: str | None, name: str | None) -> ShownChange:
    """A row of the audit log, for people."""
    return ShownChange(
        change_id=action.id,
        job_id=action.job_id,
        user=user or "",
        name=name or "",
        at_s=action.created_s,
        kind=action.kind,
        old=action.old,
        new=action.new,
        state=action.state,
        reason=action.reason,
        error=action.error,
        by_hand=action.epoch_id is None,
    )

"""Preemptions in the store: what a restarted daemon goes on with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.preemption import OVER, Phase, Preempting
from slurm_soda.daemon.store.schema import Preemption


def load_preemptions(session: Session) -> list[Preempting]:
    """All that are not over, oldest first."""
    rows = session.scalars(select(Preemption).where(Preemption.phase.not_in(OVER)).order_by(Preemption.id))
    return [
        Preempting(
            job_id=row.job_id,
            submit_s=row.submit_s,
            restart=row.restart,
            phase=cast("Phase", row.phase),
            created_s=row.created_s,
            deadline_s=row.deadline_s,
            for_jobs=tuple(row.for_jobs),
            reason=row.reason,
            pk=row.id,
        )
        for row in rows
    ]


def add_preemptions(session: Session, begun: Iterable[Preempting]) -> None:
    """Record new preemptions; they get their keys."""
    for preempting in begun:
        row = Preemption(
            job_id=preempting.job_id,
            submit_s=preempting.submit_s,
            restart=preempting.restart,
            phase=preempting.phase,
            created_s=preempting.created_s,
            deadline_s=preempting.deadline_s,
            updated_s=preempting.created_s,
            for_jobs=list(preempting.for_jobs),
            reason=preempting.reason,
        )
        session.add(row)
        session.flush()
        preempting.pk = row.id


def save_phases(session: Session, changed: Iterable[Preempting], now_s: float) -> None:
    """Record phases and deadlines."""
    for preempting in changed:
        session.execute(
            update(Preemption)
            .where(Preemption.id == preempting.pk)
            .values(phase=preempting.phase, deadline_s=preempting.deadline_s, reason=preempting.reason, updated_s=now_s)
        )

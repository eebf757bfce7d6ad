"""Preemptions in the store: what a restarted daemon goes on with."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.preemption.state_machine import LEAVING_PHASES, ActivePreemption, PreemptionPhase
from slurm_soda.daemon.preemption.vain_preemptions import FORGOTTEN_AFTER_S, VainAttempts, VainPreemptions
from slurm_soda.daemon.store.queries import active_preemptions
from slurm_soda.daemon.store.tables.scheduling import Action, Preemption, VainPreemption
from slurm_soda.policies.engine.vain_preemptions import MAX_PAUSE_S, GpuRequest


def load_preemptions(session: Session, at: Instant) -> list[ActivePreemption]:
    """All that are not over, oldest first.

    A deadline comes back no later than it was after its last change: the wall clock may have been set back since.
    """
    return [
        ActivePreemption(
            job_id=row.job_id,
            submit_s=row.submit_s,
            restart=row.restart,
            phase=cast("PreemptionPhase", row.phase),
            created_s=row.created_s,
            created_steady_s=at.steady_s - (at.now_s - row.created_s) if row.created_s <= at.now_s else float("-inf"),
            deadline_s=at.steady_s + min(row.deadline_s - at.now_s, max(row.deadline_s - row.updated_s, 0.0)),
            for_jobs=tuple(row.for_jobs),
            reason=row.reason,
            vain_for=tuple(row.vain_for),
            pk=row.id,
        )
        for row in active_preemptions(session)
    ]


def load_leaving(session: Session, at: Instant) -> list[ActivePreemption]:
    """Of :func:`load_preemptions` those whose job may not have left its places yet."""
    return [preemption for preemption in load_preemptions(session, at) if preemption.phase in LEAVING_PHASES]


def refused_runs(session: Session, since_s: float) -> list[tuple[int, int, float]]:
    """Runs that Slurm did not let go since an instant, once for each refusal, oldest first: job id, restart count, when."""
    query = (
        select(Preemption.job_id, Preemption.restart, Action.created_s)
        .join(Action, Action.preemption_id == Preemption.id)
        .where(Action.state == "failed", Action.kind.in_(("signal", "requeue")), Action.created_s >= since_s)
        .order_by(Action.id)
    )
    return [(job_id, restart, at_s) for job_id, restart, at_s in session.execute(query)]


def add_preemptions(session: Session, begun: Iterable[ActivePreemption], at: Instant) -> None:
    """Record new preemptions; they get their keys."""
    for active_preemption in begun:
        row = Preemption(
            job_id=active_preemption.job_id,
            submit_s=active_preemption.submit_s,
            restart=active_preemption.restart,
            phase=active_preemption.phase,
            created_s=active_preemption.created_s,
            deadline_s=at.wall(active_preemption.deadline_s),
            updated_s=active_preemption.created_s,
            for_jobs=list(active_preemption.for_jobs),
            reason=active_preemption.reason,
        )
        session.add(row)
        session.flush()
        active_preemption.pk = row.id


def note_requeued(session: Session, keys: Collection[int], now_s: float) -> None:
    """Slurm took the requeues that were missing of these preemptions."""
    session.execute(update(Preemption).where(Preemption.id.in_(keys)).values(phase="requeued", updated_s=now_s))


def save_phases(session: Session, changed: Iterable[ActivePreemption], at: Instant) -> None:
    """Record phases, and deadlines by the wall clock as it is set now."""
    for active_preemption in changed:
        session.execute(
            update(Preemption)
            .where(Preemption.id == active_preemption.pk)
            .values(
                phase=active_preemption.phase,
                deadline_s=at.wall(active_preemption.deadline_s),
                reason=active_preemption.reason,
                vain_for=list(active_preemption.vain_for),
                updated_s=at.now_s,
            )
        )


def load_vain_preemptions(session: Session, at: Instant) -> list[VainAttempts]:
    """Requests for which others were preempted in vain, with instants of the steady clock."""
    found = []
    for row in session.scalars(select(VainPreemption).order_by(VainPreemption.id)):
        noted_s = at.steady_since(row.noted_s, MAX_PAUSE_S + FORGOTTEN_AFTER_S)
        request = GpuRequest(row.user, row.gpus, row.gpus_per_node, row.gpu_type)
        until_s = noted_s + row.until_s - row.noted_s
        found.append(VainAttempts(request, row.times, row.job_id, noted_s, until_s))
    return found


def save_vain_preemptions(session: Session, vain: VainPreemptions, at: Instant) -> None:
    """Write them all anew if they changed; there are few."""
    if not vain.changed:
        return
    session.execute(delete(VainPreemption))
    session.add_all(
        VainPreemption(
            **each.request._asdict(),
            times=each.times,
            job_id=each.job_id,
            noted_s=at.wall(each.noted_s),
            until_s=at.wall(each.until_s),
        )
        for each in vain
    )

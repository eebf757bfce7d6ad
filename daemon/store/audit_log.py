"""Writing down what sodad does: cycles, changes to Slurm and what became of them.

A change is committed as ``intended`` before it is sent. So after a crash at any instant the store names every change that
may have reached Slurm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import Action, Cycle, Preemption
from slurm_soda.slurm_ext.write.job_changes import DRAINED_RUN, JobChange, JobChangeKind, known_change

UNSETTLED_STATES = ("intended", "sent")
"""A change in one of these may or may not have reached Slurm."""

STANDING_STATES = (*UNSETTLED_STATES, "done")
"""A change in one of these is in force, as far as anybody knows, and may be taken back."""

UNDO_KIND = "undo"
"""Kind of a recorded change that takes another one back; not itself something to undo."""

# Statements of each cycle, on the table and built once: on the class and built anew they take several times as long.
_CYCLES = cast("Table", Cycle.__table__)
_OPEN_CYCLE = insert(_CYCLES).returning(_CYCLES.c.id)
_CLOSE_CYCLE = update(_CYCLES).where(_CYCLES.c.id == bindparam("own"))

ActionState = Literal["done", "failed", "sent", "void", "undone"]


@dataclass(frozen=True, slots=True)
class IntendedChange:
    """One change about to be sent."""

    change: JobChange
    submit_s: float
    """With the job id it names the job for ever."""
    preemption_id: int | None = None
    takes_back: bool = False
    """It takes an earlier change back."""


@dataclass(frozen=True, slots=True)
class UnsettledChange:
    """A recorded change whose outcome nobody knows."""

    action_id: int
    change: JobChange
    submit_s: float
    created_s: float
    by_daemon: bool
    """By a sodad; otherwise by hand with sodactl."""
    restart: int | None = None
    """Restart count of the run that a requeue is to end."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What became of one recorded change."""

    action_id: int
    state: ActionState
    error: str = ""


def open_cycle(session: Session, *, epoch_id: int, started_s: float, mode: str, policy: str) -> int:
    """Begin a cycle's row; :func:`close_cycle` fills it."""
    columns = {"epoch_id": epoch_id, "started_s": started_s, "mode": mode, "policy": policy}
    cycle_id: int = session.execute(_OPEN_CYCLE, columns).scalar_one()
    return cycle_id


def close_cycle(session: Session, cycle_id: int, **columns: Any) -> None:
    """Fill in what the cycle found and did."""
    session.execute(_CLOSE_CYCLE, {"own": cycle_id, **columns})


def record_intents(
    session: Session, intents: Sequence[IntendedChange], *, epoch_id: int | None, cycle_id: int | None, now_s: float
) -> list[int]:
    """Record changes before they are sent; gives their ids in the same order."""
    if not intents:
        return []
    rows = [
        {
            "epoch_id": epoch_id,
            "cycle_id": cycle_id,
            "preemption_id": intent.preemption_id,
            "job_id": intent.change.job_id,
            "submit_s": intent.submit_s,
            "kind": UNDO_KIND if intent.takes_back else intent.change.kind,
            "new": dict(intent.change.new),
            "old": dict(intent.change.old),
            "reason": intent.change.reason,
            "state": "intended",
            "created_s": now_s,
        }
        for intent in intents
    ]
    return list(session.scalars(insert(Action).returning(Action.id, sort_by_parameter_order=True), rows))


def record_outcomes(session: Session, outcomes: Iterable[ChangeOutcome], now_s: float) -> None:
    """Record what became of changes. ``sent`` stays open: nobody knows yet. What somebody has settled before stays."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.state, outcome.error].append(outcome.action_id)
    for (state, error), ids in groups.items():
        values = {"state": state, "error": error, "finished_s": None if state == "sent" else now_s}
        before = STANDING_STATES if state == "undone" else UNSETTLED_STATES
        for part in split_list(ids):
            session.execute(update(Action).where(Action.id.in_(part), Action.state.in_(before)).values(**values))


def void_requeues(session: Session, preemption_ids: Collection[int], now_s: float) -> None:
    """Slurm took these preemptions' requeues, but the jobs had ended already: it says yes and does nothing."""
    if preemption_ids:
        requeues = Action.preemption_id.in_(preemption_ids), Action.kind == "requeue", Action.state == "done"
        values = {"state": "void", "error": "the job had ended by itself", "finished_s": now_s}
        session.execute(update(Action).where(*requeues).values(values))


def unsettled_changes(session: Session) -> list[UnsettledChange]:
    """Changes whose outcome is unknown, oldest first; :mod:`.settlement` finds it out."""
    query = (
        select(Action, Preemption.restart)
        .join(Preemption, Preemption.id == Action.preemption_id, isouter=True)
        .where(Action.state.in_(UNSETTLED_STATES))
        .order_by(Action.id)
    )
    return [
        UnsettledChange(
            row.id,
            known_change(row.job_id, cast("JobChangeKind", row.kind), row.new, row.old, row.reason),
            row.submit_s,
            row.created_s,
            row.epoch_id is not None,
            restart if restart is not None else _drained_run(row.new),
        )
        for row, restart in session.execute(query)
    ]


def _drained_run(new: Mapping[str, str]) -> int | None:
    """Of a requeue that belongs to no preemption: the run that it ends."""
    return int(new[DRAINED_RUN]) if DRAINED_RUN in new else None


def recent_changes(session: Session, since_s: float) -> Sequence[tuple[int, float]]:
    """``(job id, instant)`` of orders and rewrites since an instant, for the change limits of a restarted daemon."""
    query = select(Action.job_id, Action.created_s).where(
        Action.created_s > since_s, Action.kind.in_(("order", "rewrite"))
    )
    return [(job_id, created_s) for job_id, created_s in session.execute(query)]

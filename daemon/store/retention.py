"""What of the audit trail and of measurements is old enough to go, a few rows at a time.

What is still needed stays, however old it is: changes whose outcome is open, those of jobs that have not ended (they can
be undone, and tell the SiteFactor that a job had), their shares, preemptions on their way and their changes, and cycles with
such changes.
The newest change of an order or a request stays too, as the sign that sodad has ever changed something here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, exists, or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.preemption.state_machine import FINAL_PHASES
from slurm_soda.daemon.store.audit_log import UNSETTLED_STATES
from slurm_soda.daemon.store.queries import newest_order
from slurm_soda.daemon.store.tables.cpu_fit import CpuMeasurementRow
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import Action, Cycle, Job, Preemption
from slurm_soda.daemon.store.tables.services import ServiceDrainRow, ServiceMinuteRow
from slurm_soda.daemon.store.tables.sharing import FaultedPairRow, ManualShareRow, ShareRow
from slurm_soda.daemon.store.tables.start_forecasts import StartForecastRow

ROWS_AT_A_TIME = 500
"""Rows that are looked at, and perhaps deleted in one transaction: some 5 ms, in which others wait for the store."""

PRUNED_TABLES: Sequence[type[Any]] = (
    Action,
    Preemption,
    ShareRow,
    ManualShareRow,
    FaultedPairRow,
    Cycle,
    CpuMeasurementRow,
    JobProgressRow,
    JobPaceRow,
    JobGpuUseRow,
    StartForecastRow,
    ServiceDrainRow,
    ServiceMinuteRow,
)
"""In the order in which they can be pruned: what is referred to comes after what refers to it."""


_TIMES: Mapping[type[Any], Any] = {
    Action: Action.created_s,
    Preemption: Preemption.created_s,
    ShareRow: ShareRow.created_s,
    ManualShareRow: ManualShareRow.updated_s,
    FaultedPairRow: FaultedPairRow.at_s,
    Cycle: Cycle.started_s,
    CpuMeasurementRow: CpuMeasurementRow.at_s,
    JobProgressRow: JobProgressRow.at_s,
    JobPaceRow: JobPaceRow.at_s,
    JobGpuUseRow: JobGpuUseRow.last_s,
    StartForecastRow: StartForecastRow.at_s,
    ServiceDrainRow: ServiceDrainRow.asked_s,
    ServiceMinuteRow: ServiceMinuteRow.at_s,
}


@dataclass(frozen=True, slots=True)
class OldRows:
    """What one look at a part of a table found."""

    ids: Sequence[int]
    """Rows that may go."""
    last_id: int | None
    """Where the next look begins; ``None``: nothing behind it is old enough."""


def find_old_rows(
    session: Session, table: type[Any], after_id: int, *, before_s: float, idle_before_s: float
) -> OldRows:
    """Look at the next rows of one of :data:`PRUNED_TABLES`.

    Args:
        session: reads.
        table: which one.
        after_id: rows up to this one were looked at before.
        before_s: rows from before this instant may go.
        idle_before_s: the same for cycles that changed nothing.
    """
    time = _TIMES[table]
    oldest_kept_s = max(before_s, idle_before_s) if table is Cycle else before_s
    query = select(table.id, time).where(table.id > after_id).order_by(table.id).limit(ROWS_AT_A_TIME)
    seen = session.execute(query).all()
    old = [row_id for row_id, at_s in seen if at_s < oldest_kept_s]
    if not old:
        return OldRows((), None)
    may_go = session.scalars(_may_go(session, table, before_s).where(table.id.in_(old))).all()
    return OldRows(may_go, seen[-1][0])


def delete_rows(session: Session, table: type[Any], ids: Sequence[int]) -> None:
    """Delete what :func:`find_old_rows` found."""
    session.execute(delete(table).where(table.id.in_(ids)))


def _may_go(session: Session, table: type[Any], before_s: float) -> Select[int]:
    if table is Action:
        under_way = exists().where(Preemption.id == Action.preemption_id, Preemption.phase.not_in(FINAL_PHASES))
        newest = newest_order(session)
        ended = (~_has_not_ended(Action.job_id), Action.state.not_in(UNSETTLED_STATES), ~under_way)
        return select(Action.id).where(*ended, Action.id != (-1 if newest is None else newest))
    if table is Preemption:
        has_changes = exists().where(Action.preemption_id == Preemption.id)
        over = (Preemption.phase.in_(FINAL_PHASES), ~_has_not_ended(Preemption.job_id))
        return select(Preemption.id).where(*over, ~has_changes)
    if table in (ShareRow, ManualShareRow, ServiceDrainRow):
        job_id = ServiceDrainRow.job_id if table is ServiceDrainRow else table.guest
        return select(table.id).where(table.phase == "over", ~_has_not_ended(job_id))
    if table is FaultedPairRow:
        either = or_(_has_not_ended(FaultedPairRow.one), _has_not_ended(FaultedPairRow.other))
        return select(FaultedPairRow.id).where(~either)
    if table is Cycle:
        has_changes = exists().where(Action.cycle_id == Cycle.id)
        has_shares = exists().where(ShareRow.cycle_id == Cycle.id)
        return select(Cycle.id).where(or_(Cycle.sent == 0, Cycle.started_s < before_s), ~has_changes, ~has_shares)
    return select(table.id)


def _has_not_ended(job_id: Any) -> ColumnElement[bool]:
    return exists().where(Job.job_id == job_id, Job.end_s.is_(None))

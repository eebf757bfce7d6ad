"""What admins want shared, in the store: written by ``sodactl share`` and ``unshare``, read by sodad in each cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.tables.sharing import ManualShareRow

ManualKind = Literal["share", "unshare"]
REPLACED = "a later word of an admin holds"


def put_manual_share(
    session: Session, kind: ManualKind, guest: int, submit_s: float, hosts: Sequence[int], *, now_s: float, by: str
) -> int:
    """Record what an admin wants of a job, in place of what was wanted of it before; its key."""
    held = (ManualShareRow.guest == guest, ManualShareRow.phase != "over")
    session.execute(update(ManualShareRow).where(*held).values(phase="over", why=REPLACED, updated_s=now_s))
    row = ManualShareRow(
        guest=guest,
        submit_s=submit_s,
        kind=kind,
        hosts=list(hosts),
        phase="asked",
        why="",
        asked_s=now_s,
        asked_by=by,
        updated_s=now_s,
    )
    session.add(row)
    session.flush()
    return row.id


def manual_shares(session: Session) -> Sequence[ManualShareRow]:
    """Those that hold, oldest first."""
    held = select(ManualShareRow).where(ManualShareRow.phase != "over")
    return session.scalars(held.order_by(ManualShareRow.id)).all()


def manual_share_of(session: Session, job_id: int, submit_s: float) -> ManualShareRow | None:
    """The newest of one job, over or not."""
    own = (ManualShareRow.guest == job_id, ManualShareRow.submit_s == submit_s)
    return session.scalars(select(ManualShareRow).where(*own).order_by(ManualShareRow.id.desc()).limit(1)).first()


def save_manual_shares(session: Session, changed: Sequence[ManualShareRow], now_s: float) -> None:
    """Record how far they are; what an admin replaced meanwhile stays over."""
    for row in changed:
        held = (ManualShareRow.id == row.id, ManualShareRow.phase != "over")
        session.execute(update(ManualShareRow).where(*held).values(phase=row.phase, why=row.why, updated_s=now_s))

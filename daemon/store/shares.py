"""Shares in the store: what a restarted daemon goes on with, who is not to share again, and what people are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

from sqlalchemy import String, func, select, update
from sqlalchemy import cast as sql_cast
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.sharing.share_state import Share, ShareEnd, SharePhase
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.slurm_ext.sharing.guest_record import parse_guest_record


def open_shares(session: Session) -> Sequence[ShareRow]:
    """Shares that are not over, oldest first."""
    return session.scalars(select(ShareRow).where(ShareRow.phase != "over").order_by(ShareRow.id)).all()


def shares_of(session: Session, job_id: int, submit_s: float) -> Sequence[ShareRow]:
    """Shares in which a job is, or was, the guest or a host; those that are over first, oldest first."""
    own = (ShareRow.guest == job_id) & (ShareRow.submit_s == submit_s)
    hosted = (ShareRow.created_s >= submit_s) & sql_cast(ShareRow.hosts, String).contains(str(job_id))
    past = session.scalars(select(ShareRow).where(ShareRow.phase == "over", own | hosted).order_by(ShareRow.id))
    over = [row for row in past if job_id in (row.guest, *row.hosts)]
    present = [row for row in open_shares(session) if job_id in (row.guest, *row.hosts)]
    return [*over, *present]


def listed_shares(
    session: Session, *, job_id: int | None = None, only_open: bool = False, limit: int = 0
) -> Sequence[ShareRow]:
    """Shares for people, oldest first.

    Args:
        session: of the store.
        job_id: only those in which this job is a guest or a host.
        only_open: only those that are not over.
        limit: the newest so many; 0: all.
    """
    query = select(ShareRow).order_by(ShareRow.id.desc())
    if only_open:
        query = query.where(ShareRow.phase != "over")
    if limit and job_id is None:
        query = query.limit(limit)
    found = [row for row in session.scalars(query) if job_id is None or row.guest == job_id or job_id in row.hosts]
    return (found[:limit] if limit else found)[::-1]


def parted_pairs(session: Session) -> frozenset[tuple[int, int]]:
    """Pairs of job ids, the smaller one first, that an observed slowdown has parted: they never share again."""
    parted = session.execute(select(ShareRow.guest, ShareRow.hosts).where(ShareRow.end == "parted"))
    return frozenset((min(guest, host), max(guest, host)) for guest, hosts in parted for host in hosts)


def ended_shares(session: Session, since_s: float) -> list[tuple[Share, float]]:
    """Shares that ended since an instant, oldest first, with the instant."""
    query = select(ShareRow).where(ShareRow.ended_s >= since_s).order_by(ShareRow.id)
    return [(_share(row, 0.0), row.ended_s or 0.0) for row in session.scalars(query)]


def count_revocations(session: Session) -> Counter[int]:
    """How often guests lost their places, by job id; of an id that Slurm gave anew only the newest job's."""
    query = select(ShareRow.guest, func.count()).where(ShareRow.end == "revoked")
    counted = session.execute(query.group_by(ShareRow.guest, ShareRow.submit_s).order_by(ShareRow.submit_s))
    return Counter({guest: times for guest, times in counted})  # noqa: C416 - the newest submission's is the last


def add_users(session: Session, shares: Iterable[Share]) -> None:
    """Say whose the jobs of these shares are, where the store knows all of them."""
    known = list(shares)
    ids = {job_id for share in known for job_id in (share.guest, *share.hosts)}
    users: dict[int, str] = {}
    for part in split_list(sorted(ids)):
        rows = select(Job.job_id, Job.user).where(Job.job_id.in_(part)).order_by(Job.submit_s)
        users |= {job_id: user for job_id, user in session.execute(rows)}  # noqa: C416 - the newest job of an id is the last
    for share in known:
        if users.keys() >= {share.guest, *share.hosts}:
            share.users = tuple(users[job_id] for job_id in (share.guest, *share.hosts))


def newest_share(session: Session) -> int:
    """Key of the newest one; 0 without any."""
    return session.scalar(select(func.max(ShareRow.id))) or 0


def load_shares(session: Session, at: Instant, most_wait_s: float) -> list[Share]:
    """All that are not over, oldest first.

    A guest that waits does so for no longer than ``most_wait_s``: the wall clock may have been set back since.
    """
    return [_share(row, at.steady_s + min(row.deadline_s - at.now_s, most_wait_s)) for row in open_shares(session)]


def add_shares(session: Session, begun: Iterable[Share], cycle_id: int | None, at: Instant) -> None:
    """Record new shares; they get their keys."""
    for share in begun:
        row = ShareRow(
            guest=share.guest,
            submit_s=share.submit_s,
            restart=share.restart,
            hosts=list(share.hosts),
            host_restarts={str(host): count for host, count in share.host_restarts.items()},
            nodes=list(share.nodes),
            gpus=list(share.record.gpus),
            record=share.record.encode(),
            wrote=dict(share.wrote),
            phase=share.phase,
            why=share.why,
            end=share.end,
            cycle_id=cycle_id,
            created_s=share.created_s,
            deadline_s=at.wall(share.deadline_s),
            started_s=share.started_s,
            ended_s=None,
            updated_s=at.now_s,
        )
        session.add(row)
        session.flush()
        share.pk = row.id


def save_shares(session: Session, changed: Iterable[Share], at: Instant) -> None:
    """Record phases, and deadlines by the wall clock as it is set now."""
    for share in changed:
        session.execute(
            update(ShareRow)
            .where(ShareRow.id == share.pk)
            .values(
                phase=share.phase,
                restart=share.restart,
                end=share.end,
                why=share.why,
                deadline_s=at.wall(share.deadline_s),
                started_s=share.started_s,
                ended_s=share.ended_s,
                updated_s=at.now_s,
            )
        )


def _share(row: ShareRow, deadline_s: float) -> Share:
    return Share(
        guest=row.guest,
        submit_s=row.submit_s,
        restart=row.restart,
        nodes=tuple(row.nodes),
        record=parse_guest_record(row.record),
        wrote=dict(row.wrote),
        phase=cast("SharePhase", row.phase),
        created_s=row.created_s,
        deadline_s=deadline_s,
        host_restarts={int(host): count for host, count in row.host_restarts.items()},
        started_s=row.started_s,
        end=cast("ShareEnd", row.end),
        why=row.why,
        ended_s=row.ended_s,
        pk=row.id,
    )

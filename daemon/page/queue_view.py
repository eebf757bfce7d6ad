"""The queue: waiting jobs in the policy's order with their reasons and expected starts, then running ones.

All live jobs are read at once for everybody who looks, as columns and not as objects; of them each viewer is shown the part
that Slurm would show, some rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart

States = Literal["all", "waiting", "running"]

MAX_ROWS = 200
"""In one answer."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One job."""

    job_id: int
    user: str
    account: str
    partition: str
    name: str
    state: str
    reason: str
    """Slurm's, of one that waits."""
    gpus: int
    nodes: int
    cpus: int
    submit_s: float
    position: int | None
    """Place in the policy's order, the first is 1."""
    queue: int | None
    """The policy's queue, the first is 1."""
    verdict: str
    """What the policy wants; empty where it says nothing."""
    overdue: bool
    start_s: float | None
    """Of the present run."""
    node_names: str
    expects_start: bool
    """There is a forecast, whose ends are ``None`` where it is perhaps never."""
    low_s: float | None
    median_s: float | None
    high_s: float | None
    preemptions: int


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """Of all jobs that the viewer may see."""

    waiting: int
    waiting_gpus: int
    running: int
    running_gpus: int


@dataclass(frozen=True, slots=True)
class QueueExcerpt:
    """Some rows of the queue."""

    totals: QueueTotals
    found: int
    """Rows that were asked for, those before and after these included."""
    offset: int
    jobs: Sequence[QueueRow]


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Which jobs are asked for."""

    states: States = "all"
    user: str = ""
    """Of this user alone; empty: of all."""
    words: str = ""
    """In id, user, account, partition, name or reason, whatever the case; empty: any."""

    def matches(self, row: QueueRow) -> bool:
        """Whether this job is."""
        if self.states != "all" and (row.state == "PENDING") != (self.states == "waiting"):
            return False
        if self.user and row.user != self.user:
            return False
        texts = (str(row.job_id), row.user, row.account, row.partition, row.name, row.reason)
        return not self.words or any(self.words in text.casefold() for text in texts)


def read_queue(session: Session) -> list[QueueRow]:
    """All live jobs in the order in which they are shown, whosever they are."""
    columns = (
        Job.id, Job.job_id, Job.user, Job.account, Job.partition, Job.name, Job.state, Job.reason, Job.gpus, Job.nodes,
        Job.cpus, Job.submit_s, Job.preemptions, Job.note,
    )  # fmt: skip
    runs = {
        pk: (start_s, node_names)
        for pk, start_s, node_names in session.execute(
            select(JobRun.job_pk, JobRun.start_s, JobRun.node_names).where(JobRun.end_s.is_(None))
        )
    }
    expected = {
        pk: (low_s, median_s, high_s)
        for pk, low_s, median_s, high_s in session.execute(
            select(ExpectedStart.job_pk, ExpectedStart.low_s, ExpectedStart.median_s, ExpectedStart.high_s)
        )
    }
    found = session.execute(select(*columns).where(Job.end_s.is_(None)))
    rows = [_row(job, runs.get(job.id), expected.get(job.id)) for job in found]
    rows.sort(key=_place)
    return rows


def _row(
    job: Any, run: tuple[float, str] | None, expected: tuple[float | None, float | None, float | None] | None
) -> QueueRow:
    waits = job.state == "PENDING"
    start_s, node_names = (None, "") if run is None or waits else run
    forecast = expected if waits else None
    low_s, median_s, high_s = forecast or (None, None, None)
    note = job.note
    return QueueRow(
        job_id=job.job_id,
        user=job.user,
        account=job.account,
        partition=job.partition,
        name=job.name,
        state=job.state,
        reason=job.reason if waits else "",
        gpus=job.gpus,
        nodes=job.nodes,
        cpus=job.cpus,
        submit_s=job.submit_s,
        position=_from_one(note.get("position")) if waits else None,
        queue=_from_one(note.get("queue")),
        verdict=str(note.get("verdict") or ""),
        overdue=bool(note.get("overdue")),
        start_s=start_s,
        node_names=node_names,
        expects_start=forecast is not None,
        low_s=low_s,
        median_s=median_s,
        high_s=high_s,
        preemptions=job.preemptions,
    )


def _from_one(number: Any) -> int | None:
    """A plan counts from 0, people from 1."""
    return number + 1 if isinstance(number, int) and number >= 0 else None


def _place(row: QueueRow) -> tuple[bool, float, int]:
    """Those that wait first, in the policy's order, of which those without a place come last."""
    return row.state != "PENDING", math.inf if row.position is None else row.position, row.job_id


def queue_excerpt(
    rows: Iterable[QueueRow], viewer: Viewer, asked: QueueFilter, *, offset: int, limit: int
) -> QueueExcerpt:
    """What a viewer is shown of the queue, from a row on.

    Args:
        rows: of everybody, in order.
        viewer: who may see what Slurm would show.
        asked: which of them.
        offset: so many of these are left out first.
        limit: so many at most, and :data:`MAX_ROWS`.
    """
    seen = [row for row in rows if viewer.may_see(row)]
    waiting = [row for row in seen if row.state == "PENDING"]
    gpus, waiting_gpus = sum(row.gpus for row in seen), sum(row.gpus for row in waiting)
    totals = QueueTotals(len(waiting), waiting_gpus, len(seen) - len(waiting), gpus - waiting_gpus)
    found = [row for row in seen if asked.matches(row)]
    return QueueExcerpt(totals, len(found), offset, found[offset : offset + min(limit, MAX_ROWS)])

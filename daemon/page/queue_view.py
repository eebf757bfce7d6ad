"""The queue: waiting jobs in the policy's order with their reasons and expected starts, then running ones.

All live jobs are read at once for everybody who looks, as columns and not as objects; of them each viewer is shown the part
that Slurm would show, some rows at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import String, cast, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart

States = Literal["all", "waiting", "running"]

MAX_ROWS = 200
"""In one answer."""


@dataclass(slots=True)
class QueueRow:
    """One job. Not frozen, which would make ten thousand of them take three times as long."""

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
    preemptions: int
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
    rows = [
        _row(job[2:], json.loads(note), runs.get(pk), expected.get(pk))
        for job in session.execute(select(Job.id, _NOTE_TEXT, *_COLUMNS).where(Job.end_s.is_(None)))
        for pk, note in (job[:2],)
    ]
    rows.sort(key=_place)
    return rows


_COLUMNS = (
    Job.job_id, Job.user, Job.account, Job.partition, Job.name, Job.state, Job.reason, Job.gpus, Job.nodes, Job.cpus,
    Job.submit_s, Job.preemptions,
)  # fmt: skip
"""As the first fields of a :class:`QueueRow`."""
_NOTE_TEXT = cast(Job.note, String)
"""Read here, because SQLAlchemy takes twice as long for that."""
_NO_RUN, _NO_FORECAST = (None, ""), (None, None, None)


def _row(
    columns: tuple[Any, ...],
    note: dict[str, Any],
    run: tuple[float, str] | None,
    forecast: tuple[float | None, float | None, float | None] | None,
) -> QueueRow:
    judged = _from_one(note.get("queue")), str(note.get("verdict") or ""), bool(note.get("overdue"))
    others: tuple[Any, ...] = (None, *judged, *_NO_RUN, False, *_NO_FORECAST)
    row = QueueRow(*columns, *others)
    if row.state != "PENDING":
        row.reason = ""
        row.start_s, row.node_names = run or _NO_RUN
        return row
    row.position = _from_one(note.get("position"))
    row.expects_start = forecast is not None
    row.low_s, row.median_s, row.high_s = forecast or _NO_FORECAST
    return row


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

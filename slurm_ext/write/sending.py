"""From changes to calls of Slurm; updates that follow each other share one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.client import JobUpdate, SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.write.job_changes import ARRAY_TASK, REQUEUE_IF_ENDED, JobChange

CHUNK_UPDATES = 50
"""Most updates that share one scontrol process, and so most that a daemon sends after it has lost the right to.

An update takes about 1 ms, a process and the look at the store before it about 20 ms: 2000 updates take 3 s instead of 2."""

CHUNK_S = 1.0
"""A chunk that took longer than this, because slurmctld is slow, makes the next ones smaller."""


def _always_allowed() -> None:
    """No check: for whoever has no rival."""


@dataclass(frozen=True, slots=True)
class JobChangeResult:
    """What became of a change; ``error`` is empty when Slurm took it."""

    change: JobChange
    error: str = ""
    answered: bool = True
    """False if Slurm said nothing in time: it may have taken the change all the same."""


SendRecorded = Callable[[Sequence[JobChange], Mapping[int, SlurmJob]], Sequence[JobChangeResult]]
"""Records changes of these jobs, then sends them: one result for each that was sent, in order. Others have to wait."""


def apply_changes(client: SlurmClient, changes: Sequence[JobChange]) -> list[JobChangeResult]:
    """Send changes in order, one result each; see :func:`send_changes`."""
    return list(send_changes(client, changes))


def send_changes(
    client: SlurmClient, changes: Sequence[JobChange], check: Callable[[], None] = _always_allowed
) -> Iterator[JobChangeResult]:
    """Send changes in order and tell each result as it comes; updates that follow each other share a process.

    Never raises for what Slurm refuses: the error is in the result. ``check`` is called before every process; what it raises
    ends the sending.
    """
    batch: list[JobChange] = []
    for change in changes:
        if change.kind not in ("signal", "requeue"):
            batch.append(change)
            continue
        yield from _send_in_chunks(client, batch, check)
        batch = []
        check()
        yield _send_single(client, change)
    yield from _send_in_chunks(client, batch, check)


def _send_in_chunks(
    client: SlurmClient, batch: Sequence[JobChange], check: Callable[[], None]
) -> Iterator[JobChangeResult]:
    at, size = 0, CHUNK_UPDATES
    while at < len(batch):
        check()
        began_s = time.monotonic()
        results = _send_updates(client, batch[at : at + size])
        at += size
        if (took_s := time.monotonic() - began_s) > CHUNK_S:
            size = max(1, int(size * CHUNK_S / took_s))
        yield from results


def _send_updates(client: SlurmClient, chunk: Sequence[JobChange]) -> list[JobChangeResult]:
    try:
        answers = client.update([update_of(change) for change in chunk])
    except SlurmError as error:
        return [_failed(change, error) for change in chunk]
    return [
        JobChangeResult(change, answer.error, answer.answered) for change, answer in zip(chunk, answers, strict=True)
    ]


def update_of(change: JobChange) -> JobUpdate:
    """What is sent to Slurm for a change."""
    fields = {name: value for name, value in change.new.items() if name != ARRAY_TASK}
    return JobUpdate(change.job_id, tuple(fields.items()), change.new.get(ARRAY_TASK, ""))


def _send_single(client: SlurmClient, change: JobChange) -> JobChangeResult:
    try:
        if change.kind == "signal":
            client.signal(change.job_id, change.new["Signal"])
        else:
            client.requeue(change.job_id, ended=dict(change.new) == REQUEUE_IF_ENDED)
    except SlurmError as error:
        return _failed(change, error)
    return JobChangeResult(change)


def _failed(change: JobChange, error: SlurmError) -> JobChangeResult:
    return JobChangeResult(
        change, str(error), answered=not (isinstance(error, SlurmCommandError) and error.may_have_happened)
    )

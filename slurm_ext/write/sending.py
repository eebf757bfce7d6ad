"""From changes to calls of Slurm; updates that follow each other share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.client import JobUpdate, SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.write.job_changes import REQUEUE_IF_ENDED, JobChange


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


def send_changes(client: SlurmClient, changes: Sequence[JobChange]) -> Iterator[JobChangeResult]:
    """Send changes in order and tell each result as it comes; updates that follow each other share one process.

    Never raises for what Slurm refuses: the error is in the result.
    """
    batch: list[JobChange] = []
    for change in changes:
        if change.kind not in ("signal", "requeue"):
            batch.append(change)
            continue
        yield from _send_updates(client, batch)
        batch = []
        yield _send_single(client, change)
    yield from _send_updates(client, batch)


def _send_updates(client: SlurmClient, batch: Sequence[JobChange]) -> Iterator[JobChangeResult]:
    if not batch:
        return
    try:
        answers = client.update([JobUpdate(change.job_id, tuple(change.new.items())) for change in batch])
    except SlurmError as error:
        yield from (_failed(change, error) for change in batch)
        return
    for change, answer in zip(batch, answers, strict=True):
        yield JobChangeResult(change, answer.error, answer.answered)


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

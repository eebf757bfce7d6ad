"""Sending changes to Slurm and telling a refusal from an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slurm_soda.daemon.store.audit_log import ChangeOutcome
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.write.job_changes import JobChange
from slurm_soda.slurm_ext.write.sending import send_changes

RecordedChange = tuple[int, JobChange]
"""Key of a recorded change, and the change."""


def send_recorded_changes(
    client: SlurmClient, changes: Sequence[RecordedChange], check: Callable[[], None]
) -> Iterator[ChangeOutcome]:
    """Send recorded changes in order; updates that follow each other share a process, and ``check`` precedes each.

    Never raises for what Slurm refuses. ``sent`` says that Slurm did not answer: the next Slurm state will tell.
    """
    results = send_changes(client, [change for _, change in changes], check)
    for (action_id, _), result in zip(changes, results, strict=True):
        if not result.error:
            yield ChangeOutcome(action_id, "done")
        else:
            yield ChangeOutcome(action_id, "failed" if result.answered else "sent", result.error)

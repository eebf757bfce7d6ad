"""With whom a job shares GPUs, or shared them, in sentences; from the store's rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.sodactl import output

MOST_PAST = 3
"""Shares of the past that are told."""


def list_share_reasons(job_id: int, shares: Sequence[ShareRow]) -> Iterator[str]:
    """What is so now first, then the last ones of the past."""
    now = [share for share in shares if share.phase != "over"]
    past = [share for share in shares if share.phase == "over" and share.guest == job_id]
    for share in now:
        yield _present(share) if share.guest == job_id else _of_host(share)
    for share in past[-MOST_PAST:][::-1]:
        yield _past(share)
    if len(past) > MOST_PAST:
        yield f"It was a guest, or was to be one, {len(past) - MOST_PAST} times more before."


def unsaved_s(view: JobDetailView, record: SlurmJob, now_s: float) -> float | None:
    """How long a running job has run since it last saved its state, as far as it tells; else since its start.

    ``None``: nobody knows since when it runs.
    """
    saved = [row.saved_s for row in view.progress if row.restart == record.restarts and row.saved_s is not None]
    since_s = max(saved, default=record.start_s)
    return max(now_s - since_s, 0.0) if math.isfinite(since_s) else None


def _place(share: ShareRow) -> str:
    gpus, nodes = ", ".join(map(str, share.gpus)), ", ".join(share.nodes)
    return f"on GPU {gpus} of {nodes}, beside job {', '.join(map(str, share.hosts))}"


def _present(share: ShareRow) -> str:
    since = output.format_instant(share.started_s or share.created_s)
    if share.phase == "started":
        return f"It is a guest {_place(share)}, since {since}. When a host ends first, it starts again with its own request."
    if share.phase == "parting":
        return f"It leaves its place {_place(share)}, and gets its own request back: {share.why}."
    until = output.format_instant(share.deadline_s)
    return f"It waits to start as a guest {_place(share)}; from {until} on it waits with its own request again."


def _of_host(share: ShareRow) -> str:
    if share.phase != "started":
        return f"Job {share.guest} is not on its GPUs, but is on its way there or back ({share.phase})."
    gpus = ", ".join(map(str, share.gpus))
    return f"Job {share.guest} is its guest on GPU {gpus}, since {output.format_instant(share.started_s)}."


def _past(share: ShareRow) -> str:
    ended = output.format_instant(share.ended_s)
    if share.started_s is None:
        return f"It was to be a guest {_place(share)}, until {ended}: {share.why}."
    return f"It was a guest {_place(share)}, from {output.format_instant(share.started_s)} to {ended}: {share.why}."

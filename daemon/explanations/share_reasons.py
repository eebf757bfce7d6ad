"""With whom a job shares GPUs, or shared them, in sentences; from the store's rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slurm_soda.daemon import readable
from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.store.faulted_pairs import FaultOfJob
from slurm_soda.daemon.store.tables.sharing import ManualShareRow, ShareRow
from slurm_soda.slurm_ext.client import SlurmJob

MOST_PAST = 3
"""Shares of the past that are told."""


def list_share_reasons(view: JobDetailView, record: SlurmJob | None, now_s: float) -> Iterator[str]:
    """What an admin wants, and what is so now first, then the last shares of the past."""
    if view.job is None:
        return
    job_id, shares = view.job.job_id, view.shares
    if view.manual_share is not None:
        yield from _manual(view.manual_share)
    now = [share for share in shares if share.phase != "over"]
    past = [
        share for share in shares if share.phase == "over" and (share.guest == job_id or share.started_s is not None)
    ]
    for share in now:
        yield _present(share, record) if share.guest == job_id else _of_host(share)
        if share.guest == job_id and share.phase == "started" and record is not None:
            yield from _unsaved(view, record, now_s)
    for share in past[-MOST_PAST:][::-1]:
        yield _past(share) if share.guest == job_id else _past_of_host(share)
    if len(past) > MOST_PAST:
        yield f"It was a guest, was to be one, or had one, {len(past) - MOST_PAST} times more before."


def _manual(wanted: ManualShareRow) -> Iterator[str]:
    hosts, at = ", ".join(map(str, wanted.hosts)), readable.format_instant(wanted.asked_s)
    if wanted.kind == "share":
        what = f"{wanted.asked_by} wants it to share with job {hosts}, since {at}"
    else:
        what = f"{wanted.asked_by} wants it to share no more with job {hosts}, since {at}"
    if wanted.phase == "asked":
        yield f"{what}. It is not done yet{': ' + wanted.why if wanted.why else ''}."
    elif wanted.phase == "kept":
        yield f"{what}."
    else:
        yield f"{what.replace(' wants ', ' wanted ')}; that is over: {wanted.why}."


def _unsaved(view: JobDetailView, record: SlurmJob, now_s: float) -> Iterator[str]:
    lost_s = unsaved_s(view, record, now_s)
    if lost_s is not None:
        yield f"If its host ended now, it would do {readable.format_duration(lost_s)} of its run again, as far as it tells."


def unsaved_s(view: JobDetailView, record: SlurmJob, now_s: float) -> float | None:
    """How long a running job has run since it last saved its state, as far as it tells; else since its start.

    ``None``: nobody knows since when it runs.
    """
    saved = [row.saved_s for row in view.progress if row.restart == record.restarts and row.saved_s is not None]
    since_s = max(saved, default=record.start_s)
    return max(now_s - since_s, 0.0) if math.isfinite(since_s) else None


def list_fault_reasons(job_id: int, faults: Sequence[FaultOfJob]) -> Iterator[str]:
    """The last faults under MPS that concerned a job itself, then the last one of its program."""
    own = [fault for fault in faults if fault.job_id == job_id]
    for fault in own[-MOST_PAST:][::-1]:
        at = readable.format_instant(fault.at_s)
        yield (
            f"At {at} a fatal fault under MPS on {fault.node} concerned it and job {fault.other}, and may have ended both: "
            "the two do not share again."
        )
    for fault in [fault for fault in faults if fault.job_id != job_id][-1:]:
        at = readable.format_instant(fault.at_s)
        yield (
            f"It does not share with jobs like {fault.other}: at {at} a fatal fault under MPS concerned that and job "
            f"{fault.job_id}, which is like this one. An admin can lift that (`sodactl quarantine`)."
        )


def _place(share: ShareRow) -> str:
    gpus, nodes = ", ".join(map(str, share.gpus)), ", ".join(share.nodes)
    return f"on GPU {gpus} of {nodes}, beside job {', '.join(map(str, share.hosts))}"


def _present(share: ShareRow, record: SlurmJob | None) -> str:
    since = readable.format_instant(share.started_s or share.created_s)
    if share.phase == "started" and record is not None and record.state == "PENDING":
        return f"It was a guest {_place(share)}, since {since}, and lost that place; it gets its own request back."
    if share.phase == "started":
        return f"It is a guest {_place(share)}, since {since}. When a host ends first, it starts again with its own request."
    if share.phase == "parting":
        return f"It leaves its place {_place(share)}, and gets its own request back: {share.why}."
    until = readable.format_instant(share.deadline_s)
    return f"It waits to start as a guest {_place(share)}; from {until} on it waits with its own request again."


def _of_host(share: ShareRow) -> str:
    if share.phase != "started":
        return f"Job {share.guest} is not on its GPUs, but is on its way there or back ({share.phase})."
    gpus = ", ".join(map(str, share.gpus))
    return f"Job {share.guest} is its guest on GPU {gpus}, since {readable.format_instant(share.started_s)}."


def _past_of_host(share: ShareRow) -> str:
    gpus, ended = ", ".join(map(str, share.gpus)), readable.format_instant(share.ended_s)
    since = readable.format_instant(share.started_s)
    return f"Job {share.guest} was its guest on GPU {gpus}, from {since} to {ended}: {share.why}."


def _past(share: ShareRow) -> str:
    ended = readable.format_instant(share.ended_s)
    if share.started_s is None:
        return f"It was to be a guest {_place(share)}, until {ended}: {share.why}."
    return f"It was a guest {_place(share)}, from {readable.format_instant(share.started_s)} to {ended}: {share.why}."

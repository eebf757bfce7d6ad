"""With whom a job shares GPUs, or shared them, in sentences; from the store's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_soda.daemon.store.faulted_pairs import FaultOfJob
from slurm_soda.daemon.store.tables.sharing import ShareRow
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


def list_fault_reasons(job_id: int, faults: Sequence[FaultOfJob]) -> Iterator[str]:
    """The last faults under MPS that concerned a job itself, then the last one of its program."""
    own = [fault for fault in faults if fault.job_id == job_id]
    for fault in own[-MOST_PAST:][::-1]:
        at = output.format_instant(fault.at_s)
        yield (
            f"At {at} a fatal fault under MPS on {fault.node} concerned it and job {fault.other}, and may have ended both: "
            "the two do not share again."
        )
    for fault in [fault for fault in faults if fault.job_id != job_id][-1:]:
        at = output.format_instant(fault.at_s)
        yield (
            f"It does not share with jobs like {fault.other}: at {at} a fatal fault under MPS concerned that and job "
            f"{fault.job_id}, which is like this one. An admin can lift that (`sodactl quarantine`)."
        )


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

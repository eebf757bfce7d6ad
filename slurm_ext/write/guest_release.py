"""Waiting guests get their own requests again, by what their jobs carry: without sodad, its store and its files.

Guests that run are left: the hooks on their nodes send them back into the queue when a host ends, and then they wait again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.slurm_values import count_shared_gpus
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from slurm_soda.slurm_ext.sharing.guest_requests import gpus_of, other_gres, read_guest_records, request_fields
from slurm_soda.slurm_ext.write.job_changes import JobChange, earliest_start, unshare_change, waits_after_requeue


def guest_release_changes(
    client: SlurmClient, jobs: Sequence[SlurmJob], reason: str, *, gres: str, now_s: float
) -> tuple[list[JobChange], list[str]]:
    """The changes that restore them, and what is to be said of jobs whose own request is not known, or cannot be read.

    Args:
        client: is asked for the Extra of jobs that wait for shared GPUs, or for GPUs on nodes by name: their owners may have
            asked for plain GPUs again.
        jobs: all jobs.
        reason: why.
        gres: the generic resource of guests.
        now_s: the instant, Unix seconds.

    Raises:
        SlurmCommandError: Slurm did not answer.
    """
    asked = {
        job.job_id: job
        for job in jobs
        if job.state == "PENDING" and (job.shared_gpus or (job.gpus and job.req_node_names)) and not job.array_rest
    }
    changes, said = [], []
    for job_id, record in read_guest_records(client, list(asked)).items():
        job = asked[job_id]
        if isinstance(record, SlurmReplyError):
            said += [f"job {job_id} stays a guest: {record}"] if job.shared_gpus else []
            continue
        checked = checked_record(job, record, gres)
        why = reason
        if job.shared_gpus and checked is not record:
            said.append(
                f"job {job_id}: its record names another request than its own: it asks for as many plain GPUs now"
            )
            why = f"{reason}; its record does not fit it"
        start = earliest_start(job, now_s) if waits_after_requeue(job) else ""
        changes.append(unshare_change(job_id, checked, why, start_time=start))
    return changes, said


def checked_record(job: SlurmJob, record: GuestRecord, gres: str) -> GuestRecord:
    """The record with what may be restored of it: owners can write into that field where nothing stops them.

    As many GPUs as the job asks for as a guest, of ``gpu`` alone, and other generic resources as it has them; else as many
    plain GPUs. Where its owner has asked for plain GPUs since, that stays, and only its nodes are restored.
    """
    nodes = {name: text for name, text in record.undo.items() if name == "ReqNodeList"}
    if not job.shared_gpus:
        return replace(record, undo=nodes)
    if _gives_back(job, record, gres):
        return record
    clears = {"TresPerJob": ""} if count_shared_gpus(job.tres_per_job, gres) else {}
    kept = [
        piece
        for piece in job.tres_per_node.split(",")
        if piece and not gpus_of(piece) and not count_shared_gpus(piece, gres)
    ]
    plain = f"gres/gpu:{max(1, job.gpus // max(1, job.nodes))}"
    return replace(record, undo={**clears, "TresPerNode": ",".join([plain, *kept]), **nodes})


def _gives_back(job: SlurmJob, record: GuestRecord, gres: str) -> bool:
    times = {"TresPerNode": max(1, job.nodes), "TresPerJob": 1, "TresPerTask": job.tasks}
    requests = {name: text for name, text in record.undo.items() if name != "ReqNodeList" and text}
    replaced = {name for name, text in request_fields(job).items() if count_shared_gpus(text, gres)}
    if not set(requests) <= set(times) or not replaced <= set(record.undo):
        return False
    gpus = {gpus_of(text) * times[name] for name, text in requests.items() if gpus_of(text)}
    has = {"cpu": job.cpus_per_task, **other_gres(job.tres_per_node), **other_gres(job.tres_per_job), gres: 0}
    others = [item for text in requests.values() for item in other_gres(text).items()]
    return gpus == {job.gpus} and all(not name.startswith(f"{gres}:") and has.get(name) == n for name, n in others)

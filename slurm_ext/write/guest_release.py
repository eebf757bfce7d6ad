"""Waiting guests get their own requests again, by what their jobs carry: without sodad, its store and its files.

Guests that run are left, and named: the hooks on their nodes send them back into the queue when a host ends, and then they
wait again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES, count_shared_gpus
from slurm_soda.slurm_ext.sharing.guest_record import is_guest_record, parse_guest_record
from slurm_soda.slurm_ext.sharing.guest_requests import gpus_of, may_carry_record, other_gres, request_fields
from slurm_soda.slurm_ext.write.job_changes import JobChange, restore_change

_SHARED = re.compile(r"(?:^|,)gres/(?!gpu:)([A-Za-z][A-Za-z0-9_]*):g[0-9]+:1(?=,|$)")


def running_guests(jobs: Sequence[SlurmJob]) -> list[str]:
    """Jobs that are on GPUs of others now, as nothing can be restored before they wait again: by their
    :attr:`~.SlurmJob.address`, as the id of an array's last task is the array's.

    Without the hooks on the nodes nobody would send them away when their hosts end, nor keep others off their GPUs.
    """
    present = (job for job in jobs if job.state not in ENDED_STATES | {"PENDING"})
    return [job.address for job in present if _as_guest(job)[0].shared_gpus]


def guest_release_changes(
    client: SlurmClient, jobs: Sequence[SlurmJob], reason: str
) -> tuple[list[JobChange], list[str]]:
    """The changes that restore them, and what is to be said of jobs whose own request is not known, or cannot be read.

    Args:
        client: is asked for the Extra of jobs that wait for shared GPUs, under whatever name, or for GPUs on nodes by name:
            their owners may have asked for plain GPUs again.
        jobs: all jobs.
        reason: why.

    Raises:
        SlurmCommandError: Slurm did not answer.
    """
    guests = (_as_guest(job) for job in jobs if job.state == "PENDING" and not job.array_rest)
    asked = {job.job_id: (job, gres) for job, gres in guests if may_carry_record(job)}
    changes, said = [], []
    for job_id, extra in (client.extras(list(asked)) if asked else {}).items():
        job, gres = asked[job_id]
        if isinstance(extra, SlurmReplyError):
            said += [f"job {job_id} stays a guest: {extra}"] if job.shared_gpus else []
        elif is_guest_record(extra):
            undo, old = checked_undo(job, extra, gres)
            if not old:
                said.append(
                    f"job {job_id}: its record names no request of its size; it asks for as many plain GPUs now"
                )
            changes.append(restore_change(job_id, undo, old, reason))
    return changes, said


def _as_guest(job: SlurmJob) -> tuple[SlurmJob, str]:
    """A waiting job, with its GPUs by any resource that has a type for each index, and the name of that.

    What ``sharing.gres`` says may not be known here, or be another name by now.
    """
    named = _SHARED.search(f"{job.tres_per_node},{job.tres_per_job}")
    if named is None or job.shared_gpus:
        return job, named[1] if named else SHARED_GPU_GRES
    per_node = count_shared_gpus(job.tres_per_node, named[1])
    shared = per_node * max(1, job.nodes) or count_shared_gpus(job.tres_per_job, named[1])
    return replace(job, gpus=job.gpus + shared, shared_gpus=shared), named[1]


def checked_undo(job: SlurmJob, extra: str, gres: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What may be restored of a record, and the record; nothing of that where it does not count: owners can write into that
    field where nothing stops them.

    As many GPUs as the job asks for as a guest, of ``gpu`` alone, and other generic resources as it has them; else as many
    plain GPUs. Where its owner has asked for plain GPUs since, that stays, and only its nodes are restored.
    """
    try:
        record = parse_guest_record(extra)
    except SlurmReplyError:
        record = None
    nodes = {"ReqNodeList": "" if record is None else record.undo.get("ReqNodeList", "")}
    if not job.shared_gpus:
        return nodes, {"Extra": extra} if record else {}
    if record and _gives_back(job, record.undo, gres):
        return record.undo, {"Extra": extra}
    kept = [
        piece
        for piece in job.tres_per_node.split(",")
        if piece and not gpus_of(piece) and not count_shared_gpus(piece, gres)
    ]
    plain = {"TresPerNode": ",".join([f"gres/gpu:{max(1, job.gpus // max(1, job.nodes))}", *kept])}
    clears = {"TresPerJob": ""} if count_shared_gpus(job.tres_per_job, gres) else {}
    return {**clears, **plain, **nodes}, {}


def _gives_back(job: SlurmJob, undo: Mapping[str, str], gres: str) -> bool:
    times = {"TresPerNode": max(1, job.nodes), "TresPerJob": 1, "TresPerTask": job.tasks}
    requests = {name: text for name, text in undo.items() if name != "ReqNodeList" and text}
    replaced = {name for name, text in request_fields(job).items() if count_shared_gpus(text, gres)}
    if not set(requests) <= set(times) or not replaced <= set(undo):
        return False
    gpus = {gpus_of(text) * times[name] for name, text in requests.items() if gpus_of(text)}
    has = {"cpu": job.cpus_per_task, **other_gres(job.tres_per_node), **other_gres(job.tres_per_job), gres: 0}
    others = [item for text in requests.values() for item in other_gres(text).items()]
    return gpus == {job.gpus} and all(not name.startswith(f"{gres}:") and has.get(name) == n for name, n in others)

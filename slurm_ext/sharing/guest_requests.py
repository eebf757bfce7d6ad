"""How a waiting job asks for GPUs: whether that can be rewritten to the second generic resource, and what undoes it."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.slurm_values import parse_gpu_request, parse_other_gres
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord, is_guest_record, parse_guest_record


def request_fields(job: SlurmJob) -> dict[str, str]:
    """What a job asks for of generic resources, in the words and by the fields of ``scontrol update``."""
    return {"TresPerNode": job.tres_per_node, "TresPerJob": job.tres_per_job, "TresPerTask": job.tres_per_task}


def gpus_of(text: str) -> int:
    """GPUs in one of these fields; Slurm writes TresPerTask with ``=`` as well."""
    return parse_gpu_request(text.replace("=", ":"))[0]


def other_gres(text: str) -> dict[str, int]:
    """All else in one of these fields, by name and type."""
    return parse_other_gres(text.replace("=", ":"))


def may_carry_record(job: SlurmJob) -> bool:
    """Whether a job's Extra may be a guest's record: it is a guest, or it waits for plain GPUs on nodes by name, for which
    its owner may have asked since.
    """
    waits = job.state == "PENDING" and not job.array_rest
    return job.shared_gpus > 0 or (waits and job.gpus > 0 and bool(job.req_node_names))


def why_not_guest(job: SlurmJob, request: WaitingJob | JobRequest | None) -> str:
    """Why a waiting job cannot be made a guest, for people; empty if it can.

    Args:
        job: as squeue tells it.
        request: what else is known. Only :class:`JobRequest` tells everything; without it the job must be asked again
            before it is changed.
    """
    return _why_not_by_job(job) or _why_not_by_request(job, request)


def _why_not_by_job(job: SlurmJob) -> str:
    found = [name for name, text in request_fields(job).items() if gpus_of(text)]
    checks = (
        (job.state != "PENDING", "it does not wait"),
        (not job.batch, "salloc or srun started it, and only batch jobs can be requeued when their host ends"),
        (not job.requeue, "it must not be requeued (--no-requeue)"),
        (job.het_job_id, "it is part of a heterogeneous job"),
        (job.shared_gpus, "it is a guest already"),
        (not job.gpus, "it asks for no GPU"),
        (job.dependency, "it waits for other jobs"),
        (not found, "it asks for GPUs by socket (--gpus-per-socket)"),
        (
            any(_names_gpus_twice(text) for text in request_fields(job).values()),
            "it asks for GPUs twice in one way (--gpus-per-node besides --gres)",
        ),
        ("TresPerTask" in found and len(found) > 1, "it asks for GPUs by task and in another way as well"),
        (
            set(other_gres(f"{job.tres_per_job},{job.tres_per_task}")) - {"cpu"},
            "it asks for other generic resources by task or for the whole job",
        ),
    )
    return next((text for applies, text in checks if applies), "")


def _names_gpus_twice(text: str) -> bool:
    """As ``gres/gpu:1,gres/gpu:1``, of which a plain job gets one; a guest would get their sum."""
    return sum(gpus_of(piece) > 0 for piece in text.split(",")) > 1


def _why_not_by_request(job: SlurmJob, request: WaitingJob | JobRequest | None) -> str:
    words = ""
    if isinstance(request, JobRequest):
        if not request.memory_per_cpu_mib and not request.memory_per_node_mib:
            return "it asks for the whole memory of its node (--mem=0, or no --mem where the site has no default)"
        spreads = job.nodes > 1 or (gpus_of(job.tres_per_task) and job.tasks > 1)
        if spreads and request.most_nodes != request.nodes:
            # Slurm 24.11 bounds its nodes to those of the guest, and keeps that when the request is restored.
            return "it does not say on how many nodes (--nodes=N)"
        words = request.unshareable
    elif request is not None:
        words = "--exclusive" if request.whole_nodes else "--cpus-per-gpu" if request.cpus_per_tres else ""
    return f"it has {words}, which a guest cannot have" if words else ""


def read_guest_records(client: SlurmClient, job_ids: Sequence[int]) -> dict[int, GuestRecord | SlurmReplyError]:
    """The records of guests, by one process; jobs whose Extra is no guest's are left out.

    Raises:
        SlurmCommandError: Slurm did not answer.
    """
    found: dict[int, GuestRecord | SlurmReplyError] = {}
    for job_id, extra in (client.extras(job_ids) if job_ids else {}).items():
        try:
            if isinstance(extra, SlurmReplyError):
                found[job_id] = extra
            elif is_guest_record(extra):
                found[job_id] = parse_guest_record(extra)
        except SlurmReplyError as error:
            found[job_id] = error
    return found

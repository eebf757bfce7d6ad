"""``scontrol --json show job N`` of a waiting job, as :class:`JobRequest`; JSON, because a job's name could forge text.

Numbers are plain up to Slurm 22.05 and objects with ``set`` and ``infinite`` later; both are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes, parse_shared
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import JSON_ERRORS, json_count, task_count


def show_job_command(job_id: int) -> tuple[str, ...]:
    """The command for one job."""
    return ("scontrol", "--json", "show", "job", str(job_id))


def parse_request(
    stdout: bytes, framing: ReplyFraming, job_id: int, exclusive: Callable[[], ExclusiveNodes]
) -> JobRequest:
    """One job's request.

    Args:
        stdout: the reply.
        framing: how it ends.
        job_id: the job.
        exclusive: asks squeue from whom the job keeps its nodes, where this version's JSON does not tell.

    Raises:
        SlurmReplyError: the reply is cut short or of another form.
    """
    what = f"scontrol's picture of job {job_id}"
    try:
        reply = json.loads(framing.body(stdout, what), strict=False)
        job = next(job for job in reply["jobs"] if job["job_id"] == job_id)
        nodes = parse_shared(reply, job) or exclusive()
        return JobRequest(
            job_id=job_id,
            nodes=max(json_count(job["node_count"]), 1),
            most_nodes=json_count(job.get("max_nodes")),
            tasks=task_count(str(json_count(job["tasks"])), what),
            tasks_per_node=json_count(job.get("tasks_per_node")),
            cpus=json_count(job["cpus"]),
            cpus_per_task=max(json_count(job["cpus_per_task"]), 1),
            least_cpus_per_node=max(json_count(job["minimum_cpus_per_node"]), 1),
            memory_per_cpu_mib=json_count(job["memory_per_cpu"]),
            memory_per_node_mib=json_count(job["memory_per_node"]),
            peculiar=_reason_cpus_fixed(job, nodes),
            unshareable=_reason_no_guest(job, nodes),
        )
    except JSON_ERRORS as error:
        raise SlurmReplyError(f"{what} cannot be read ({type(error).__name__}: {error}); does it wait?") from error


def _reason_cpus_fixed(job: dict[str, Any], nodes: ExclusiveNodes) -> str:
    """The first thing in a request that ties its CPUs to something else."""
    checks = (
        (json_count(job.get("het_job_id")), "a heterogeneous job"),
        (not job.get("batch_flag", True), "a job of salloc or srun"),
        (nodes is not ExclusiveNodes.NOBODY, "--exclusive"),
        (job.get("cpus_per_tres"), "--cpus-per-gpu"),
        (
            any(json_count(job.get(key)) for key in _LAYOUT),
            "--sockets-per-node, --cores-per-socket or --threads-per-core",
        ),
        (any(json_count(job.get(key)) for key in _BOUND), "tasks bound to sockets or cores"),
        (json_count(job.get("core_spec")), "--core-spec"),
        (job.get("contiguous"), "--contiguous"),
    )
    return next((text for found, text in checks if found), "")


def _reason_no_guest(job: dict[str, Any], nodes: ExclusiveNodes) -> str:
    """The first thing in a request that a guest cannot have."""
    checks = (
        (nodes is not ExclusiveNodes.NOBODY, "--exclusive"),
        (job.get("extra"), "an Extra of its own"),
        (job.get("tres_per_socket"), "--gpus-per-socket"),
        (json_count(job.get("tasks_per_tres")), "--ntasks-per-gpu"),
        (job.get("cpus_per_tres"), "--cpus-per-gpu"),
        (job.get("memory_per_tres"), "--mem-per-gpu"),
        ("GRES_BINDING_ENFORCED" in (job.get("flags") or ()), "--gres-flags=enforce-binding"),
    )
    return next((text for found, text in checks if found), "")


_BOUND = ("tasks_per_socket", "tasks_per_core")
_LAYOUT = ("sockets_per_node", "cores_per_socket", "threads_per_core")

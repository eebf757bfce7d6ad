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
from slurm_soda.slurm_ext.read.slurm_values import JSON_ERRORS, task_count

_NOT_SET = (0xFFFF, 0xFFFE, 0xFFFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFE)
"""INFINITE and NO_VAL, in 16, 32 and 64 bits, as older versions print them."""
_MAX_NUMBER = 2**53


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
            nodes=max(_number(job["node_count"]), 1),
            most_nodes=_number(job.get("max_nodes")),
            tasks=task_count(str(_number(job["tasks"])), what),
            tasks_per_node=_number(job.get("tasks_per_node")),
            cpus=_number(job["cpus"]),
            cpus_per_task=max(_number(job["cpus_per_task"]), 1),
            least_cpus_per_node=max(_number(job["minimum_cpus_per_node"]), 1),
            memory_per_cpu_mib=_number(job["memory_per_cpu"]),
            memory_per_node_mib=_number(job["memory_per_node"]),
            peculiar=_reason_cpus_fixed(job, nodes),
            unshareable=_reason_no_guest(job, nodes),
        )
    except JSON_ERRORS as error:
        raise SlurmReplyError(f"{what} cannot be read ({type(error).__name__}: {error}); does it wait?") from error


def _number(value: Any) -> int:
    """A count; 0 where it is not set."""
    if isinstance(value, dict):
        value = value["number"] if value.get("set") and not value.get("infinite") else 0
    count = int(value or 0)
    if count in _NOT_SET:
        return 0
    if not 0 <= count <= _MAX_NUMBER:
        raise ValueError("a number out of range")
    return count


def _reason_cpus_fixed(job: dict[str, Any], nodes: ExclusiveNodes) -> str:
    """The first thing in a request that ties its CPUs to something else."""
    checks = (
        (_number(job.get("het_job_id")), "a heterogeneous job"),
        (not job.get("batch_flag", True), "a job of salloc or srun"),
        (nodes is not ExclusiveNodes.NOBODY, "--exclusive"),
        (job.get("cpus_per_tres"), "--cpus-per-gpu"),
        (any(_number(job.get(key)) for key in _LAYOUT), "--sockets-per-node, --cores-per-socket or --threads-per-core"),
        (_number(job.get("tasks_per_socket")) or _number(job.get("tasks_per_core")), "tasks bound to sockets or cores"),
        (_number(job.get("core_spec")), "--core-spec"),
        (job.get("contiguous"), "--contiguous"),
    )
    return next((text for found, text in checks if found), "")


def _reason_no_guest(job: dict[str, Any], nodes: ExclusiveNodes) -> str:
    """The first thing in a request that a guest cannot have."""
    checks = (
        (nodes is not ExclusiveNodes.NOBODY, "--exclusive"),
        (job.get("extra"), "an Extra of its own"),
        (job.get("tres_per_socket"), "--gpus-per-socket"),
        (_number(job.get("tasks_per_tres")), "--ntasks-per-gpu"),
        (job.get("cpus_per_tres"), "--cpus-per-gpu"),
        (job.get("memory_per_tres"), "--mem-per-gpu"),
        ("GRES_BINDING_ENFORCED" in (job.get("flags") or ()), "--gres-flags=enforce-binding"),
    )
    return next((text for found, text in checks if found), "")


_LAYOUT = ("sockets_per_node", "cores_per_socket", "threads_per_core")

"""``scontrol --json show job N``: what one running job holds on which node.

The text form puts a job's name before its nodes, so a name could forge them; JSON escapes it. One job is quick to print.
"""

from __future__ import annotations

import json
from typing import Any

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import JSON_ERRORS, MAX_COUNT, parse_gpu_request


def show_job_command(job_id: int) -> tuple[str, ...]:
    """The command for one job."""
    return ("scontrol", "--json", "show", "job", str(job_id))


def parse_allocation(stdout: bytes, framing: ReplyFraming, job_id: int) -> list[tuple[str, int, int]]:
    """``(node, gpus, cpus)`` in the order of the job's nodes.

    Raises:
        SlurmReplyError: the reply is cut short, is of another form, or the job holds nothing.
    """
    what = f"scontrol's picture of job {job_id}"
    try:
        reply = json.loads(framing.body(stdout, what), strict=False)
        job = next(job for job in reply["jobs"] if job["job_id"] == job_id)
        nodes = _nodes(job["job_resources"])
        gpus = [parse_gpu_request(detail)[0] for detail in job.get("gres_detail") or [""] * len(nodes)]
        return [(name, count, cpus) for (name, cpus), count in zip(nodes, gpus, strict=True)]
    except JSON_ERRORS as error:
        raise SlurmReplyError(f"{what} cannot be read ({type(error).__name__}: {error}); is it running?") from error


def _nodes(resources: dict[str, Any]) -> list[tuple[str, int]]:
    """Name and CPUs of each node."""
    return _nodes_23_02(resources) if "allocated_nodes" in resources else _nodes_23_11(resources)


def _nodes_23_11(resources: dict[str, Any]) -> list[tuple[str, int]]:
    """Slurm 23.11 and newer (data_parser v0.0.40 on)."""
    return [(str(node["name"]), _cpus(node["cpus"]["count"])) for node in resources["nodes"]["allocation"]]


def _nodes_23_02(resources: dict[str, Any]) -> list[tuple[str, int]]:
    """Slurm 22.05 and 23.02."""
    return [(str(node["nodename"]), _cpus(node["cpus_used"])) for node in resources["allocated_nodes"]]


def _cpus(value: Any) -> int:
    count = int(value)
    if not 0 <= count <= MAX_COUNT:
        raise ValueError("a number of CPUs out of range")
    return count

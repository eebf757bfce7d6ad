"""``scontrol --json`` with ``show job N`` on its standard input: what running jobs hold on which node, jobs' Extra, and how
many tasks of an array may run at a time.

The text form puts a job's name before its nodes, so a name could forge them; JSON escapes it. One process answers for many
jobs: one for each takes ten times as long, most of it to start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from slurm_soda.slurm_ext.client import Allocation, HeldOnNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.slurm_values import (
    JSON_ERRORS,
    MAX_COUNT,
    SHARED_GPU_GRES,
    count_shared_gpus,
    json_count,
    parse_gpu_indices,
    parse_gpu_request,
    parse_shared_indices,
)

SHOW_JOBS_COMMAND = ("scontrol", "--json")


def show_jobs_script(job_ids: Sequence[int]) -> bytes:
    """Standard input for scontrol."""
    return "".join(f"show job {job_id}\n" for job_id in job_ids).encode("ascii")


def parse_allocations(
    stdout: bytes, job_ids: Sequence[int], shared_gres: str = SHARED_GPU_GRES
) -> dict[int, Allocation | SlurmReplyError]:
    """What each job holds, in the order of its nodes, or why that cannot be read: its reply is missing, cut short or of
    another form, or the job holds nothing. ``shared_gres`` is the generic resource of guests.
    """
    found: dict[int, Allocation | SlurmReplyError] = {}
    for reply in _replies(stdout.decode("utf-8", "surrogateescape")):
        try:
            for job in reply["jobs"]:
                if job["job_id"] in job_ids:
                    found[job["job_id"]] = _allocation(job, shared_gres)
        except JSON_ERRORS:
            continue
    missing = "scontrol does not tell what job {} holds, or cuts it short; is it running?"
    return {job_id: found.get(job_id, SlurmReplyError(missing.format(job_id))) for job_id in job_ids}


def parse_extras(stdout: bytes, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
    """The Extra of each job, or why it cannot be read: its reply is missing, cut short, or without that field."""
    found: dict[int, str | SlurmReplyError] = {}
    for reply in _replies(stdout.decode("utf-8", "surrogateescape")):
        try:
            found |= {job["job_id"]: str(job["extra"] or "") for job in reply["jobs"]}
        except JSON_ERRORS:
            continue
    missing = "scontrol does not tell the Extra of job {}, or cuts it short; does Slurm still list it?"
    return {job_id: found.get(job_id, SlurmReplyError(missing.format(job_id))) for job_id in job_ids}


def parse_array_throttles(stdout: bytes, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
    """How many tasks of each array may run at a time (``--array=0-7%4``), 0: any number; or why that cannot be read: its
    reply is missing, cut short or of another form, or no task waits in the record that is all of them together.
    """
    found: dict[int, int | SlurmReplyError] = {}
    for reply in _replies(stdout.decode("utf-8", "surrogateescape")):
        try:
            for job in reply["jobs"]:
                if job.get("array_task_string"):  # only this record has it
                    found[json_count(job["array_job_id"])] = json_count(job["array_max_tasks"])
        except JSON_ERRORS:
            continue
    missing = "scontrol does not tell how many tasks of array {} may run, or cuts it short; does one of them wait?"
    return {array: found.get(array, SlurmReplyError(missing.format(array))) for array in arrays}


def _replies(text: str) -> Iterator[Any]:
    """The documents, one after the other. Between them is nothing but scontrol's echo of what it was asked."""
    decoder, at = json.JSONDecoder(strict=False), text.find("{")
    while at >= 0:
        try:
            reply, end = decoder.raw_decode(text, at)
        except JSON_ERRORS:
            return
        yield reply
        at = text.find("{", end)


def _allocation(job: dict[str, Any], shared_gres: str) -> Allocation | SlurmReplyError:
    try:
        nodes = _nodes(job["job_resources"])
        details = job.get("gres_detail") or [""] * len(nodes)
        asked = [str(job.get(name) or "") for name in ("tres_per_node", "tres_per_job", "tres_per_task")]
        is_guest = any(count_shared_gpus(text, shared_gres) for text in asked)  # or --exclusive gave it all there is
        return [
            HeldOnNode(
                name,
                parse_gpu_request(detail)[0] + is_guest * count_shared_gpus(detail, shared_gres),
                cpus,
                parse_gpu_indices(detail),
                parse_shared_indices(detail, shared_gres) if is_guest else (),
            )
            for (name, cpus), detail in zip(nodes, details, strict=True)
        ]
    except JSON_ERRORS as error:
        what = f"scontrol's picture of job {job['job_id']}"
        return SlurmReplyError(f"{what} cannot be read ({type(error).__name__}: {error}); is it running?")


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

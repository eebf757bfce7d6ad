"""What a waiting job asks for in detail, what partitions allow, and the change that follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.policies.pipeline.actions import RequestedCpus, ResizeRequest
from slurm_soda.slurm_ext.client import JobUpdate
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.partition_limits import (
    parse_boot_s,
    parse_cluster_memory_limit,
    parse_limits,
    parse_tiers,
)
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.scontrol_allocation import parse_allocations
from slurm_soda.slurm_ext.read.scontrol_request import parse_request
from slurm_soda.slurm_ext.write.job_changes import resize_change
from slurm_soda.slurm_ext.write.scontrol_updates import refusal_of_update

FRAMING = ReplyFraming("RecordedReply")
REPLIES = Path(__file__).parent / "replies"


def nobody() -> ExclusiveNodes:
    """What squeue says of an ordinary job."""
    return ExclusiveNodes.NOBODY


def framed(document: Any) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return (text + FRAMING.end).encode("utf-8", "surrogateescape")


def told(nodes: ExclusiveNodes = ExclusiveNodes.NOBODY, **values: Any) -> JobRequest:
    """A request as Slurm 22.05 told it, with plain numbers."""
    job: dict[str, Any] = {
        "job_id": 7, "node_count": 1, "max_nodes": 0, "tasks": 1, "tasks_per_node": 0, "cpus": 4, "cpus_per_task": 4,
        "minimum_cpus_per_node": 4, "memory_per_cpu": 0, "memory_per_node": 1000, "cpus_per_tres": "",
        "tasks_per_socket": 0xFFFF, "tasks_per_core": 0xFFFF, "threads_per_core": 0xFFFE, "core_spec": 0,
        "contiguous": False, "het_job_id": 0, "sockets_per_node": None, "cores_per_socket": None,
    }  # fmt: skip
    return parse_request(framed({"jobs": [job | values]}), FRAMING, 7, lambda: nodes)


@pytest.mark.parametrize(("version", "job_id"), [("24.11.5", 10055), ("26.05.5", 4)])
def test_recorded_replies(version: str, job_id: int) -> None:
    stdout = (REPLIES / version / f"allocation-{job_id}.txt").read_bytes()
    assert parse_request(stdout, FRAMING, job_id, nobody) == JobRequest(job_id, 1, 0, 1, 0, 3, 3, 3, 0, 1500)


def test_a_reply_that_is_cut_short_or_of_another_job() -> None:
    with pytest.raises(SlurmReplyError, match="cut short"):
        parse_request(b'{"jobs": []}', FRAMING, 7, nobody)
    with pytest.raises(SlurmReplyError, match="job 8"):
        parse_request(framed({"jobs": [{"job_id": 7}]}), FRAMING, 8, nobody)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, ""),
        ({"nodes": ExclusiveNodes.ALL}, "--exclusive"),
        ({"nodes": ExclusiveNodes.USERS}, "--exclusive"),
        ({"nodes": ExclusiveNodes.NOBODY}, ""),
        ({"cpus_per_tres": "gres/gpu:2"}, "--cpus-per-gpu"),
        ({"threads_per_core": {"set": True, "infinite": False, "number": 1}}, "--threads-per-core"),
        ({"tasks_per_core": {"set": True, "infinite": False, "number": 1}}, "bound to"),
        ({"core_spec": 2}, "--core-spec"),
        ({"het_job_id": {"set": True, "infinite": False, "number": 5}}, "heterogeneous"),
    ],
)
def test_what_ties_cpus_to_something_else(values: dict[str, Any], text: str) -> None:
    peculiar = told(**values).peculiar
    assert text in peculiar
    assert bool(peculiar) == bool(text)


@pytest.mark.parametrize(
    ("values", "tasks"),
    [
        ({}, 1),
        ({"tasks": 4}, 0),
        ({"tasks": 4, "max_nodes": 1}, 4),
        ({"node_count": 2, "max_nodes": 2, "tasks": 2, "cpus": 8}, 1),
        ({"node_count": 2, "max_nodes": 2, "tasks": 4, "tasks_per_node": 2, "cpus": 16}, 2),
        ({"node_count": 2, "max_nodes": 2, "tasks": 4, "cpus": 16}, 0),
        ({"node_count": 2, "max_nodes": 4, "tasks": 2, "cpus": 8}, 0),
        ({"node_count": 2, "max_nodes": 2, "tasks": 3, "cpus": 12}, 0),
    ],
)
def test_tasks_on_each_node(values: dict[str, Any], tasks: int) -> None:
    assert told(**values).even_tasks_per_node == tasks


def test_limits_of_partitions() -> None:
    reply = (
        "PartitionName=gpu Default=YES MaxCPUsPerNode=UNLIMITED State=UP MaxMemPerNode=UNLIMITED\n"
        "PartitionName=mm MaxCPUsPerNode=8 State=UP MaxMemPerCPU=1000\n"
        "PartitionName=node MaxCPUsPerNode=UNLIMITED State=UP MaxMemPerNode=64000\n"
    )
    assert parse_limits(framed(reply), FRAMING, 4000) == {
        "gpu": PartitionLimits("gpu", 0, 4000),
        "mm": PartitionLimits("mm", 8, 1000),
        "node": PartitionLimits("node", 0, 0),
    }
    assert parse_cluster_memory_limit(framed("A = 1\nMaxMemPerCPU            = 2048\n"), FRAMING) == 2048
    assert parse_cluster_memory_limit(framed("MaxMemPerNode           = UNLIMITED\n"), FRAMING) == 0


def test_when_slurmctld_was_started() -> None:
    reply = "Configuration data as of 1795399900\nBOOT_TIME               = 1795399712\nBurstBufferType = (null)\n"
    assert parse_boot_s(framed(reply), FRAMING) == 1795399712.0
    for other in ("", "BOOT_TIME               = 2026-11-23T02:08:32\n"):
        with pytest.raises(SlurmReplyError, match="BOOT_TIME"):
            parse_boot_s(framed(other), FRAMING)


def test_a_change_names_all_fields_that_slurm_needs_and_the_way_back() -> None:
    before = RequestedCpus(cpus=40, cpus_per_task=10, least_cpus_per_node=20, memory_per_cpu_mib=500)
    action = ResizeRequest(7, 2, 3, 12, 6, before, "why", memory_per_cpu_mib=1_666)
    change = resize_change(action)
    assert change.new == {"CPUsPerTask": "3", "NumCPUs": "12", "MinCPUsNode": "6", "MinMemoryCPU": "1666"}
    assert change.old == {"CPUsPerTask": "10", "NumCPUs": "40", "MinCPUsNode": "20", "MinMemoryCPU": "500"}
    for fields in (change.new, change.old):
        assert not refusal_of_update(JobUpdate(7, tuple(fields.items())))
    assert "MinMemoryCPU" not in resize_change(replace(action, memory_per_cpu_mib=None)).new


@pytest.mark.parametrize("number", ["9" * 5000, "1" + "0" * 4000, "1e999", "-1", '{"set": true, "number": 1e400}'])
def test_absurd_numbers_make_one_job_unreadable(number: str) -> None:
    text = json.dumps({"jobs": [{"job_id": 7, "node_count": 1, "tasks": 1, "cpus": "?"}]}).replace('"?"', number)
    with pytest.raises(SlurmReplyError, match="cannot be read"):
        parse_request(framed(text), FRAMING, 7, nobody)
    held = {"nodes": {"allocation": [{"name": "n1", "cpus": {"count": "?"}}]}}
    text = json.dumps({"jobs": [{"job_id": 7, "job_resources": held}]}).replace('"?"', number)
    answer = parse_allocations(text.encode(), [7])[7]
    assert isinstance(answer, SlurmReplyError)


def test_tiers_of_partitions() -> None:
    reply = (
        "PartitionName=a PriorityTier=2 State=UP\nPartitionName=b PriorityTier=65533\nPartitionName=c PriorityTier=x\n"
    )
    assert parse_tiers(framed(reply), FRAMING) == {"a": 2, "b": 65533}

"""Replies of Slurm with any bytes in them: read, or refused as a whole with one error; never anything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.pools.scontrol_partitions import parse_partitions
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.hostlist import compress_hosts, expand_hosts
from slurm_soda.slurm_ext.read.partition_limits import parse_cluster_memory_limit, parse_limits, parse_tiers
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.sacct import parse_accounting
from slurm_soda.slurm_ext.read.scontrol_allocation import parse_allocations
from slurm_soda.slurm_ext.read.scontrol_nodes import parse_nodes
from slurm_soda.slurm_ext.read.scontrol_request import parse_request
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.slurm_ext.read.sprio import parse_site_factors
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader
from slurm_soda.slurm_ext.read.squeue_waiting import parse_waiting
from slurm_soda.slurm_ext.write.scontrol_updates import parse_update_errors
from tests.fuzz.fuzzing import anything, fuzz

FRAMING = ReplyFraming("RecordedReply")
END = FRAMING.end.encode()
RECORDED = sorted((Path(__file__).parents[1] / "slurm_ext" / "replies").glob("*/*.txt"))


def recorded(name: str) -> list[bytes]:
    return [path.read_bytes() for path in RECORDED if path.stem.partition("-")[0] == name]


PARTITIONS = [
    b"PartitionName=gpu MaxCPUsPerNode=UNLIMITED MaxMemPerCPU=1000 Nodes=n[1-2] PriorityTier=1 State=UP" + END,
    b"PartitionName=a MaxMemPerNode=64000 Nodes=(null) PriorityTier=65533 State=DOWN\nPartitionName=b State=UP\n" + END,
]
CONFIG = [b"MaxMemPerCPU            = 2048\nMaxMemPerNode           = UNLIMITED\n" + END]


def jobs(raw: bytes) -> list[SlurmJob]:
    """A job that can be read can be decided about."""
    found = SqueueReader().parse(raw, FRAMING)
    build_snapshot(2e9, found, [], {}, {}, {})
    return found


TARGETS: dict[str, tuple[list[bytes], Callable[[bytes], Any]]] = {
    "squeue": (recorded("squeue"), jobs),
    "squeue waiting": (recorded("squeue"), lambda raw: parse_waiting(raw, FRAMING)),
    "nodes": (recorded("nodes"), lambda raw: parse_nodes(raw, FRAMING)),
    "sprio": (recorded("sprio"), lambda raw: parse_site_factors(raw, FRAMING)),
    "sacct": (recorded("sacct"), lambda raw: parse_accounting(raw, FRAMING)),
    "allocation": (recorded("allocation"), lambda raw: parse_allocations(raw, [10054])),
    "request": (recorded("allocation"), lambda raw: parse_request(raw, FRAMING, 10054, lambda: ExclusiveNodes.NOBODY)),
    "limits": (PARTITIONS, lambda raw: parse_limits(raw, FRAMING, 0)),
    "tiers": (PARTITIONS, lambda raw: parse_tiers(raw, FRAMING)),
    "partitions": (PARTITIONS, lambda raw: [each.nodes for each in parse_partitions(raw, FRAMING).values()]),
    "configuration": (CONFIG, lambda raw: parse_cluster_memory_limit(raw, FRAMING)),
    "errors of updates": (recorded("update"), lambda raw: parse_update_errors(raw, 9, FRAMING.nonce)),
}


@pytest.mark.parametrize("target", TARGETS)
@fuzz(100)
@given(data=st.data())
def test_a_reply(target: str, data: st.DataObject) -> None:
    samples, parse = TARGETS[target]
    assert samples
    keep = len(END) if target != "errors of updates" else 0
    raw = data.draw(anything(samples, keep))
    try:
        parse(raw)
    except SlurmReplyError as error:
        assert "\n" not in str(error)  # noqa: PT017 - one line, whatever was in it


HOSTS = [b"n[1-3,7],login", b"r[01-02]n[1-9]", b"n1,n2,gpu-a[08-11]", b"(null)", b"None assigned"]


@fuzz(300)
@given(raw=anything(HOSTS))
def test_a_host_list(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    try:
        names = expand_hosts(text)
    except SlurmReplyError:
        return
    if all(names) and not any(set(name) & set("[],") for name in names):
        assert expand_hosts(compress_hosts(names)) == names or compress_hosts(names) in ("(null)", "None assigned")

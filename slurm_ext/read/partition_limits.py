"""``scontrol show partition`` and ``show config``: limits and tiers of partitions, and when slurmctld was started."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import PartitionLimits
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import count_or_zero

SHOW_PARTITIONS_COMMAND = ("scontrol", "--oneliner", "--all", "show", "partition")

_TIER = re.compile(r"[0-9]{1,5}", re.ASCII)
_BOOT_TIME = re.compile(r"^BOOT_TIME\s*=\s*([0-9]{1,12})\s*$", re.MULTILINE)
_CLUSTER_LIMIT = re.compile(r"^MaxMemPerCPU\s*=\s*([0-9]{1,18})\s*$", re.MULTILINE)


def parse_cluster_memory_limit(stdout: bytes, framing: ReplyFraming) -> int:
    """The cluster's MaxMemPerCPU in MiB; 0 without one."""
    found = _CLUSTER_LIMIT.search(framing.body(stdout, "scontrol's configuration"))
    return int(found[1]) if found else 0


def parse_boot_s(stdout: bytes, framing: ReplyFraming) -> float:
    """When slurmctld was started, in Unix seconds.

    Raises:
        SlurmReplyError: the reply is cut short, or does not have it.
    """
    what = "scontrol's configuration"
    found = _BOOT_TIME.search(framing.body(stdout, what))
    if not found:
        raise SlurmReplyError(f"{what} has no BOOT_TIME in seconds")
    return float(found[1])


def parse_limits(stdout: bytes, framing: ReplyFraming, cluster_limit_mib: int) -> dict[str, PartitionLimits]:
    """Every partition by name.

    Raises:
        SlurmReplyError: the reply is cut short.
    """
    found = {}
    for pairs in _partitions(stdout, framing):
        if name := pairs.get("PartitionName"):
            memory_mib = count_or_zero(pairs.get("MaxMemPerCPU", ""))
            # A partition's own limit, by CPU or by node, stands in place of the cluster's.
            own = memory_mib or count_or_zero(pairs.get("MaxMemPerNode", ""))
            found[name] = PartitionLimits(
                name, count_or_zero(pairs.get("MaxCPUsPerNode", "")), memory_mib if own else cluster_limit_mib
            )
    return found


def parse_tiers(stdout: bytes, framing: ReplyFraming) -> dict[str, int]:
    """PriorityTier of every partition, by name; one whose tier cannot be read is left out.

    Raises:
        SlurmReplyError: the reply is cut short.
    """
    tiers = {pairs.get("PartitionName", ""): pairs.get("PriorityTier", "") for pairs in _partitions(stdout, framing)}
    return {name: int(tier) for name, tier in tiers.items() if name and _TIER.fullmatch(tier)}


def parse_partition_qos(text: str) -> frozenset[str]:
    """QOS of partitions, by name.

    Raises:
        SlurmReplyError: a line has no QOS, as every partition's does.
    """
    found = set()
    for pairs in _pairs(text):
        if pairs.get("PartitionName"):
            if "QoS" not in pairs:
                raise SlurmReplyError("scontrol's list of partitions tells no QoS")
            found.add(pairs["QoS"])
    return frozenset(found - {"N/A", "(null)", ""})


def _partitions(stdout: bytes, framing: ReplyFraming) -> Iterator[dict[str, str]]:
    """Words of each partition, by key."""
    return _pairs(framing.body(stdout, "scontrol's list of partitions"))


def _pairs(text: str) -> Iterator[dict[str, str]]:
    for line in text.split("\n"):
        yield dict(word.split("=", 1) for word in line.split() if "=" in word)

"""``scontrol show node``: all nodes in one call, as :class:`SlurmNode`, in slurmctld's order."""

from __future__ import annotations

import re

from slurm_soda.slurm_ext.client import SlurmNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import (
    SHARED_GPU_GRES,
    parse_gpu_indices,
    parse_gpu_request,
    parse_integer,
    parse_shared_indices,
    text_or_empty,
)

SHOW_NODES_COMMAND = ("scontrol", "--oneliner", "--details", "--all", "show", "node")

_PAIR = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")
_NEEDED = ("NodeName", "CPUAlloc", "CPUTot", "RealMemory", "AllocMem", "State", "Partitions")
_USABLE_BASES = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_UNUSABLE_FLAGS = frozenset(
    {"BLOCKED", "DRAIN", "DYNAMIC_FUTURE", "FAIL", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "POWERING_DOWN",
     "POWER_DOWN", "REBOOT_ISSUED", "RESERVED"}
)  # fmt: skip
_KNOWN_BASES = _USABLE_BASES | {"DOWN", "ERROR", "FUTURE", "UNKNOWN"}


def parse_nodes(stdout: bytes, framing: ReplyFraming, shared_gres: str = SHARED_GPU_GRES) -> list[SlurmNode]:
    """All nodes; ``shared_gres`` is the generic resource of guests.

    Free text of admins (comment, reason) ends a line, so the first value of every key is Slurm's own. A line break in such
    text makes a line of its own, which is passed over.

    Raises:
        SlurmReplyError: the reply is cut short or has something that this version cannot read.
    """
    records: dict[str, SlurmNode] = {}
    for line in framing.body(stdout, "scontrol's list of nodes").split("\n"):
        if line.startswith("NodeName=") and " CPUTot=" in line:
            record = _record(line, shared_gres)
            records.setdefault(record.name, record)
    return list(records.values())


def _record(line: str, shared_gres: str) -> SlurmNode:
    pairs: dict[str, str] = {}
    for key, value in _PAIR.findall(line):
        pairs.setdefault(key, value)
    missing = [key for key in _NEEDED if key not in pairs]
    if missing:
        raise SlurmReplyError(f"scontrol's node {line[9:60]!r} lacks {', '.join(missing)}")
    name, state = pairs["NodeName"], pairs["State"]
    gres, gres_used = (text_or_empty(pairs.get(key, "")) for key in ("Gres", "GresUsed"))
    gpus, gpu_type = parse_gpu_request(gres)
    allocated, in_use = parse_gpu_request(gres_used)[0], parse_gpu_indices(gres_used)
    return SlurmNode(
        name=name,
        state=state,
        usable=is_node_usable(state),
        cpus=parse_integer(pairs.get("CPUEfctv", pairs["CPUTot"]), f"CPUs of {name}"),
        cpus_allocated=parse_integer(pairs["CPUAlloc"], f"CPUs of {name}"),
        memory_mib=parse_integer(pairs["RealMemory"], f"memory of {name}") - _reserved_mib(pairs),
        memory_allocated_mib=parse_integer(pairs["AllocMem"], f"memory of {name}"),
        gpus=gpus,
        gpus_allocated=allocated,
        gpu_type=gpu_type,
        partitions=tuple(part for part in text_or_empty(pairs.get("Partitions", "")).split(",") if part),
        features=tuple(part for part in text_or_empty(pairs.get("ActiveFeatures", "")).split(",") if part),
        gres=gres,
        gres_used=gres_used,
        gpus_in_use=in_use if len(in_use) == allocated and max(in_use, default=0) < max(gpus, 1) else None,
        shareable=tuple(index for index in parse_shared_indices(gres, shared_gres) if index < gpus),
    )


def _reserved_mib(pairs: dict[str, str]) -> int:
    """Memory that the site keeps for the system."""
    return parse_integer(text_or_empty(pairs.get("MemSpecLimit", "")) or "0", "MemSpecLimit")


def is_node_usable(state: str) -> bool:
    """Whether Slurm would start an ordinary job on a node in this state, such as ``MIXED+DRAIN``.

    Powered-down cloud nodes are: Slurm wakes them for a job.

    Raises:
        SlurmReplyError: the base state is unknown.
    """
    base, *flags = state.split("+")
    if base not in _KNOWN_BASES:
        raise SlurmReplyError(f"node state {state!r} is unknown to this version")
    return base in _USABLE_BASES and _UNUSABLE_FLAGS.isdisjoint(flags)

"""``scontrol show node``: all nodes in one call, as :class:`NodeRecord`, in slurmctld's order."""

from __future__ import annotations

import re

from slurm_soda.slurm_ext.cli.framing import Framing
from slurm_soda.slurm_ext.cli.values import gpu_request, integer, plain
from slurm_soda.slurm_ext.client import NodeRecord
from slurm_soda.slurm_ext.errors import SlurmReplyError

SHOW_NODES = ("scontrol", "--oneliner", "--details", "--all", "show", "node")

_PAIR = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")
_NEEDED = ("NodeName", "CPUAlloc", "CPUTot", "RealMemory", "AllocMem", "State", "Partitions")
_USABLE_BASES = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_UNUSABLE_FLAGS = frozenset(
    {"BLOCKED", "DRAIN", "DYNAMIC_FUTURE", "FAIL", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "POWERING_DOWN",
     "POWER_DOWN", "REBOOT_ISSUED", "RESERVED"}
)  # fmt: skip
_KNOWN_BASES = _USABLE_BASES | {"DOWN", "ERROR", "FUTURE", "UNKNOWN"}


def parse_nodes(stdout: bytes, framing: Framing) -> list[NodeRecord]:
    """All nodes.

    Free text of admins (comment, reason) ends a line, so the first value of every key is Slurm's own. A line break in such
    text makes a line of its own, which is passed over.

    Raises:
        SlurmReplyError: the reply is cut short or has something that this version cannot read.
    """
    records: dict[str, NodeRecord] = {}
    for line in framing.body(stdout, "scontrol's list of nodes").split("\n"):
        if line.startswith("NodeName=") and " CPUTot=" in line:
            record = _record(line)
            records.setdefault(record.name, record)
    return list(records.values())


def _record(line: str) -> NodeRecord:
    pairs: dict[str, str] = {}
    for key, value in _PAIR.findall(line):
        pairs.setdefault(key, value)
    missing = [key for key in _NEEDED if key not in pairs]
    if missing:
        raise SlurmReplyError(f"scontrol's node {line[9:60]!r} lacks {', '.join(missing)}")
    name, state = pairs["NodeName"], pairs["State"]
    gpus, gpu_type = gpu_request(pairs.get("Gres", ""))
    return NodeRecord(
        name=name,
        state=state,
        usable=usable(state),
        cpus=integer(pairs.get("CPUEfctv", pairs["CPUTot"]), f"CPUs of {name}"),
        cpus_allocated=integer(pairs["CPUAlloc"], f"CPUs of {name}"),
        memory_mib=integer(pairs["RealMemory"], f"memory of {name}") - _spared_mib(pairs),
        memory_allocated_mib=integer(pairs["AllocMem"], f"memory of {name}"),
        gpus=gpus,
        gpus_allocated=gpu_request(pairs.get("GresUsed", ""))[0],
        gpu_type=gpu_type,
        partitions=tuple(part for part in plain(pairs.get("Partitions", "")).split(",") if part),
    )


def _spared_mib(pairs: dict[str, str]) -> int:
    """Memory that the site keeps for the system."""
    return integer(plain(pairs.get("MemSpecLimit", "")) or "0", "MemSpecLimit")


def usable(state: str) -> bool:
    """Whether Slurm would start an ordinary job on a node in this state, such as ``MIXED+DRAIN``.

    Powered-down cloud nodes are: Slurm wakes them for a job.

    Raises:
        SlurmReplyError: the base state is unknown.
    """
    base, *flags = state.split("+")
    if base not in _KNOWN_BASES:
        raise SlurmReplyError(f"node state {state!r} is unknown to this version")
    return base in _USABLE_BASES and _UNUSABLE_FLAGS.isdisjoint(flags)

"""Nodes and partitions by Slurm's files alone: what pools name and slurm.conf does not, so that slurmctld does not start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurm_soda.daemon.pools.prerequisites import PoolObstacle, find_included_files
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord
from slurm_soda.slurm_ext.read.hostlist import compress_hosts, expand_hosts

_ENTRY = re.compile(r"^[ \t]*(NodeName|NodeSet|PartitionName)[ \t]*=[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
_NODES = re.compile(r"^[ \t]*PartitionName=.*?[ \t]Nodes=(\S+)", re.IGNORECASE | re.MULTILINE)


def check_configured(record: PoolsRecord, config: Mapping[str, str]) -> Iterator[PoolObstacle]:
    """Compare the include file and the divided partitions with slurm.conf; needs no slurmctld.

    Says nothing where slurm.conf cannot be read here or lists no nodes.

    Args:
        record: the pools that were applied.
        config: slurmctld's configuration, empty if it does not answer.
    """
    include = Path(record.include_path)
    conf = Path(config.get("SLURM_CONF") or os.environ.get("SLURM_CONF") or include.with_name("slurm.conf"))
    try:
        files = {conf.resolve(), *find_included_files(conf)} - {include.resolve()}
        known = _entries("\n".join(file.read_text("utf-8", "replace") for file in files if file.exists()))
        pooled = {node for text in _NODES.findall(include.read_text("utf-8", "replace")) for node in expand_hosts(text)}
    except (OSError, SlurmError):
        return
    if not known["nodename"]:
        return
    if gone := sorted(pooled - known["nodename"] - known["nodeset"]):
        nodes = compress_hosts(gone)
        yield PoolObstacle(
            "pool nodes",
            f"{include} names {nodes}, which {conf} lacks: slurmctld ends at `scontrol reconfigure` and does not start",
            f"take {nodes} out of {include} (or put it back into {conf}), start slurmctld, "
            "and run `sodactl pools apply --force`",
        )
    for base in sorted(set(record.bases) - known["partitionname"]):
        yield PoolObstacle(
            "pool base",
            f"partition {base}, which is divided, is not in {conf}",
            "put it back there under that name, start or reconfigure slurmctld, run `sodactl pools revert`, then rename or "
            "remove it",
        )


def _entries(text: str) -> dict[str, set[str]]:
    """Names of nodes, node sets and partitions that slurm.conf defines, by a line's first word in small letters."""
    found: dict[str, set[str]] = {"nodename": set(), "nodeset": set(), "partitionname": set()}
    for word, value in _ENTRY.findall(text):
        found[word.lower()].update(expand_hosts(value))
    return found

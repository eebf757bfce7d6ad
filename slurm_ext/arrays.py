"""The arrays that are in force, as a file: written by whoever applies them, read by sodad, sodactl and job_submit.lua."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_soda.policies.arrays.kinds import ArrayKind, NodeClass
from slurm_soda.policies.arrays.layout import ArrayPartition, ArrayTable
from slurm_soda.slurm_ext.errors import SlurmReplyError

TABLE_NAME = "arrays.json"
"""Name of the file in the state directory (``/var/lib/slurm-soda``)."""
VERSION = 1


def table_document(table: ArrayTable) -> list[dict[str, Any]]:
    """A table as plain data for JSON."""
    return [asdict(part) for part in table]


def table_of(document: Any) -> ArrayTable:
    """The table of :func:`table_document`.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    parts = [_part(**entry) for entry in document]
    return ArrayTable({part.name: part for part in parts})


def read_table(state_dir: Path) -> ArrayTable:
    """The arrays in force; an empty table where there are none.

    Raises:
        SlurmReplyError: the file is there and cannot be read.
    """
    file = state_dir / TABLE_NAME
    try:
        document = json.loads(file.read_text("utf-8"))
        table, version = table_of(document["table"]), document["version"]
    except FileNotFoundError:
        return ArrayTable()
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SlurmReplyError(
            f"{file}: not a record of arrays: {error}; run `sodactl arrays revert`, which reads it from Slurm"
        ) from error
    if version != VERSION:
        raise SlurmReplyError(f"{file} has version {version!r}, this slurm-soda knows {VERSION}; upgrade slurm-soda")
    return table


def _part(
    *, name: str, base: str, kind: str, node_class: dict[str, Any], borrowing: bool, nodes: list[str], tier: int,
    cores_per_node: int,
) -> ArrayPartition:  # fmt: skip
    return ArrayPartition(
        name, base, ArrayKind(kind), NodeClass(**node_class), borrowing, tuple(nodes), tier, cores_per_node
    )

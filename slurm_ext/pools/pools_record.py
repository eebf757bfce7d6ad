"""The pools that are in force, as a file: written before Slurm is changed, read by sodad and sodactl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from slurm_soda.policies.pools.kinds import NodeClass, PoolKind, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules

POOLS_RECORD_NAME = "pools.json"
"""Name of the file in the state directory (``/var/lib/slurm-soda``)."""
RECORD_VERSION = 1

PoolsPhase = Literal["applying", "applied", "reverting"]


@dataclass(frozen=True, slots=True)
class PoolsRecord:
    """What slurm-soda made of partitions, and what was there before."""

    phase: PoolsPhase
    """``applying``: some of it may not be there yet; ``reverting``: what is left still holds jobs."""
    table: PoolTable
    shares: Mapping[NodeClass, PoolShare]
    rules: RoutingRules
    sent: Mapping[str, Mapping[str, str]]
    """By partition what it was to be; also partitions of an earlier layout that still hold jobs."""
    shown: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By partition what Slurm showed of it afterwards, to tell whether somebody else changes it."""
    bases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The divided partitions as Slurm showed them before; slurm-soda does not change them."""
    base_of: Mapping[str, str] = field(default_factory=dict)
    """By partition of :attr:`sent` where its waiting jobs go when it does; also of bases that are no longer divided."""
    include_path: str = ""
    changed_s: float = 0.0
    by: str = ""

    @property
    def leaving(self) -> tuple[str, ...]:
        """Partitions that are no longer used, and go when their last job has left them."""
        return tuple(name for name in self.sent if self.phase == "reverting" or self.table.get(name) is None)


def table_document(table: PoolTable) -> list[dict[str, Any]]:
    """A table as plain data for JSON."""
    return [asdict(part) for part in table]


def table_from_document(document: Any) -> PoolTable:
    """The table of :func:`table_document`.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    parts = [_pool_partition(**entry) for entry in document]
    return PoolTable({part.name: part for part in parts})


def shares_document(shares: Mapping[NodeClass, PoolShare]) -> list[dict[str, Any]]:
    """Shares as plain data for JSON."""
    return [asdict(node_class) | asdict(share) for node_class, share in shares.items()]


def record_document(record: PoolsRecord) -> dict[str, Any]:
    """A record as plain data for JSON."""
    return {
        "version": RECORD_VERSION,
        "phase": record.phase,
        "changed_s": record.changed_s,
        "by": record.by,
        "include_path": record.include_path,
        "rules": asdict(record.rules),
        "shares": shares_document(record.shares),
        "table": table_document(record.table),
        "sent": {name: dict(of) for name, of in record.sent.items()},
        "shown": {name: dict(of) for name, of in record.shown.items()},
        "bases": {name: dict(of) for name, of in record.bases.items()},
        "base_of": dict(record.base_of),
    }


def read_record(state_dir: Path) -> PoolsRecord | None:
    """The record; ``None`` where there are no pools.

    Raises:
        SlurmReplyError: the file is there and cannot be read.
    """
    file = state_dir / POOLS_RECORD_NAME
    try:
        document = json.loads(file.read_text("utf-8"))
        version = document["version"]
        record = _record(document) if version == RECORD_VERSION else None
    except FileNotFoundError:
        return None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise SlurmReplyError(
            f"{file}: not a record of pools: {error}; `scontrol show partition` has what there is, docs/pools.md says how"
            " to take it back by hand"
        ) from error
    if record is None:
        raise SlurmReplyError(
            f"{file} has version {version!r}, this slurm-soda knows {RECORD_VERSION}; upgrade slurm-soda"
        )
    return record


def read_table(state_dir: Path) -> PoolTable:
    """The pools in force; an empty table where there are none, or none any more.

    Raises:
        SlurmReplyError: the file is there and cannot be read.
    """
    record = read_record(state_dir)
    return PoolTable() if record is None else record.table


def _record(document: Any) -> PoolsRecord:
    if document["phase"] not in get_args(PoolsPhase):
        raise ValueError(f"there is no phase {document['phase']!r:.40}")
    table, sent, bases = (
        table_from_document(document["table"]),
        _partitions(document["sent"]),
        _partitions(document["bases"]),
    )
    known = {name: _base_of_partition(name, table, list(bases)) for name in sent}
    return PoolsRecord(
        phase=document["phase"],
        table=table,
        shares=dict(_share(**entry) for entry in document["shares"]),
        rules=RoutingRules(**document["rules"]),
        sent=sent,
        shown=_partitions(document["shown"]),
        bases=bases,
        base_of=known | _checked_texts(document.get("base_of", {})),
        include_path=_checked_text(document["include_path"]),
        changed_s=float(document["changed_s"]),
        by=_checked_text(document["by"]),
    )


def _base_of_partition(name: str, table: PoolTable, bases: Sequence[str]) -> str:
    """The base of a partition in a record of an earlier slurm-soda, which said it only by the names."""
    part = table.get(name)
    return part.base if part else max((base for base in bases if name.startswith(f"{base}_")), key=len, default="")


def _partitions(document: Any) -> dict[str, dict[str, str]]:
    return {_checked_text(name): _checked_texts(of) for name, of in document.items()}


def _checked_texts(document: Any) -> dict[str, str]:
    return {_checked_text(key): _checked_text(value) for key, value in document.items()}


def _checked_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _share(*, gpu_type: str, gpus: int, cpus: int, cpu_cores: int, large_nodes: int) -> tuple[NodeClass, PoolShare]:
    return NodeClass(gpu_type, gpus, cpus), PoolShare(cpu_cores, large_nodes)


def _pool_partition(
    *, name: str, base: str, kind: str, node_class: dict[str, Any], borrowing: bool, nodes: list[str], tier: int,
    cores_per_node: int,
) -> PoolPartition:  # fmt: skip
    return PoolPartition(
        name, base, PoolKind(kind), NodeClass(**node_class), borrowing, tuple(nodes), tier, cores_per_node
    )

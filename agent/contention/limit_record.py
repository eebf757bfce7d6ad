"""What is limited on this node, on disk before it is done, so that whoever comes next can take it back."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_soda.wire.errors import SodaError

VERSION = 1


class LimitRecordError(SodaError):
    """The file cannot be written or says nothing that can be understood."""


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """What may exist: a name stands here from before it is made until after it is gone."""

    groups: frozenset[str] = frozenset()
    """Paths of resctrl groups, relative to the mount."""
    cores: frozenset[int] = frozenset()
    """Jobs with fewer cores than allocated."""
    peak_bytes_per_s: float = 0.0
    """The highest bandwidth that this node has shown."""


def read_limit_record(path: Path) -> LimitRecord:
    """The record on disk; an absent file is an empty one.

    Raises:
        LimitRecordError: it is damaged, or another version's.
    """
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != VERSION:
            raise LimitRecordError(f"{path} has version {found['version']}, not {VERSION}")
        record = LimitRecord(
            groups=frozenset(str(group) for group in found["groups"]),
            cores=frozenset(int(job) for job in found["cores"]),
            peak_bytes_per_s=_peak(found["peak_bytes_per_s"]),
        )
    except FileNotFoundError:
        return LimitRecord()
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise LimitRecordError(f"{path} cannot be read ({error}): groups of ours are found by their names") from error
    return record


def _peak(value: Any) -> float:
    peak = float(value)
    if not 0 <= peak < math.inf:  # nothing would ever be over it
        raise ValueError(f"no node has {peak} bytes a second")
    return peak


def write_limit_record(path: Path, record: LimitRecord) -> None:
    """Replace the file: whole or not at all, and on the disk when this returns.

    Raises:
        LimitRecordError: the disk or the directory refuses.
    """
    content = {
        "version": VERSION,
        "groups": sorted(record.groups),
        "cores": sorted(record.cores),
        "peak_bytes_per_s": record.peak_bytes_per_s,
    }
    fresh = path.with_name(f"{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(json.dumps(content).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise LimitRecordError(f"{path} cannot be written ({error.strerror}): nothing is limited") from error

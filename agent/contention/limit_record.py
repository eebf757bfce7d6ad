"""What is limited on this node, on disk before it is done, so that whoever comes next can take it back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_soda.agent.state_file import StateFileError, read_state, write_state

VERSION = 1


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
        StateFileError: it is damaged, or another version's; groups of ours are found by their names then.
    """
    found: dict[str, Any] = read_state(path, VERSION)
    if not found:
        return LimitRecord()
    try:
        return LimitRecord(
            groups=frozenset(str(group) for group in found["groups"]),
            cores=frozenset(int(job) for job in found["cores"]),
            peak_bytes_per_s=_peak(found["peak_bytes_per_s"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise StateFileError(f"{path} is damaged ({error}): groups of ours are found by their names") from error


def _peak(value: Any) -> float:
    peak = float(value)
    if not 0 <= peak < math.inf:  # nothing would ever be over it
        raise ValueError(f"no node has {peak} bytes a second")
    return peak


def write_limit_record(path: Path, record: LimitRecord) -> None:
    """Replace the file: whole or not at all, and on the disk when this returns.

    Raises:
        StateFileError: the disk or the directory refuses.
    """
    content = {
        "groups": sorted(record.groups),
        "cores": sorted(record.cores),
        "peak_bytes_per_s": record.peak_bytes_per_s,
    }
    write_state(path, VERSION, content)

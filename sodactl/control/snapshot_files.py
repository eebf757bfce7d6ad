"""Dumps of snapshots as commands read them: every mistake is one line that names the file."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.document import MOST_BYTES, SnapshotDump, read_dump
from slurm_soda.slurm_ext.errors import SodaError


def read_file(file: Path) -> SnapshotDump:
    """The dump in a file.

    Raises:
        SodaError: it cannot be read, or is no dump that this version knows.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise SodaError(f"{file} cannot be read: {error.strerror}") from error
    return parsed(raw, file)


def parsed(raw: bytes, file: Path) -> SnapshotDump:
    """The dump in these bytes of a file.

    Raises:
        SodaError: it is no dump that this version knows.
    """
    try:
        return read_dump(raw)
    except PolicyError as error:
        raise SodaError(f"{file}: {error}") from error

"""A small file of a keeper's, replaced whole: what it is about to change, on the disk before it changes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from slurm_soda.wire.errors import SodaError


class StateFileError(SodaError):
    """The file cannot be written, or says nothing that can be understood; names the file and what follows from it."""


def read_state(path: Path, version: int) -> dict[str, object]:
    """The content; an absent file is an empty one.

    Raises:
        StateFileError: it is damaged, or another version's.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise StateFileError(f"{path} cannot be read ({error}): what it recorded is not known any more") from error
    if not isinstance(found, dict) or found.get("version") != version:
        raise StateFileError(f"{path} is not of version {version}: what it recorded is not known any more")
    return found


def write_state(path: Path, version: int, content: dict[str, object]) -> None:
    """Replace the file: whole or not at all, and on the disk when this returns.

    Its directory is made where it is missing; others may not write to it, so that they may know the new file's name.

    Raises:
        StateFileError: the disk or the directory refuses, or others may write there.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.parent.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise StateFileError(f"{path.parent} can be written by others: nothing is changed; make it root's alone")
        with open(fresh, "wb", opener=_private) as file:
            file.write(json.dumps({"version": version, **content}, separators=(",", ":")).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise StateFileError(f"{path} cannot be written ({error.strerror}): nothing is changed") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)

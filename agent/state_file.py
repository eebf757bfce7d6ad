"""A small file of a controller, replaced whole: what it is about to change, on the disk before it changes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from slurm_soda.wire.atomic_files import write_at
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
    text = json.dumps({"version": version, **content}, separators=(",", ":"))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise StateFileError(
                    f"{path.parent} can be written by others: nothing is changed; make it root's alone"
                )
            write_at(directory, path.name, text.encode("ascii") + b"\n", temporary=f"{path.name}.new")
        finally:
            os.close(directory)
    except OSError as error:
        raise StateFileError(f"{path} cannot be written ({error.strerror}): nothing is changed") from error

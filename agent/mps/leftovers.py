"""Removes what users left in the directories of their control daemons, some with each turn.

The hooks do not wait for it: they move such a directory to where only root comes, and try for a moment. Whoever has it open
may go on putting things into it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

from slurm_soda.agent.sampling.progress_cleaning import DIRECTORY_FLAGS, clean_directory

MAX_DIRECTORIES = 100
"""Looked at in a turn."""


def remove_leftovers(directory: Path, within_s: float) -> bool:
    """Remove some of the directories ``UID.…`` in this one, which is root's alone, with all that is in them.

    Args:
        directory: where the hooks put them.
        within_s: no further pass begins after so long; each removes a bounded number of names.

    Returns:
        Whether some are left.
    """
    until_s = time.monotonic() + within_s
    try:
        top = os.open(directory, DIRECTORY_FLAGS)
    except OSError:
        return False
    try:
        while names := _some_names(top):
            for name in names:
                with contextlib.suppress(OSError):  # what is left of it goes with a later pass
                    _remove_some(top, name)
                if time.monotonic() >= until_s:
                    return True
        return False
    finally:
        os.close(top)


def _some_names(top: int) -> list[str]:
    with os.scandir(top) as entries:
        return [entry.name for entry in itertools.islice(entries, MAX_DIRECTORIES)]


def _remove_some(top: int, name: str) -> None:
    user, _, _ = name.partition(".")
    inner = os.open(name, DIRECTORY_FLAGS, dir_fd=top)
    try:
        clean_directory(inner, int(user) if user.isdecimal() else 0, (), 0)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)

"""Whether somebody else may reach a file: root sees everything."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from pathlib import Path

NOBODY = -1
"""A user who owns nothing and is in no group: all others."""
_READ, _ENTER = 4, 1


def first_closed(path: Path, uid: int = NOBODY) -> Path | None:
    """The first folder on the way that a user may not enter, or the path itself, if he may not read it (or enter it).

    ``None``: he may, or it is not there.
    """
    try:
        if uid == 0 or not path.exists():
            return None
    except PermissionError:
        pass  # behind a folder that the caller may not enter either
    groups = _groups_of(uid)
    for folder in reversed(path.parents):
        if not _allows(folder, _ENTER, uid, groups):
            return folder
    return None if _allows(path, _ENTER if path.is_dir() else _READ, uid, groups) else path


def _allows(path: Path, right: int, uid: int, groups: Collection[int]) -> bool:
    found = path.stat()
    shift = 6 if found.st_uid == uid else 3 if found.st_gid in groups else 0
    return bool(found.st_mode >> shift & right)


def _groups_of(uid: int) -> Collection[int]:
    try:
        user = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return ()
    return os.getgrouplist(user.pw_name, user.pw_gid)

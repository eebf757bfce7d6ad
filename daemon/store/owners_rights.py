"""Root opens files in SlurmUser's directories with SlurmUser's rights.

Whoever owns a directory may put a link there in place of a file, at any moment. With no more rights than his own, root can
be led to nothing that he could not open himself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = 0
_LOCK = threading.RLock()
"""A process has one effective user at a time."""


@contextmanager
def owners_rights(path: Path | None) -> Iterator[None]:
    """Within the block, act for the owner of the first directory on the way to ``path`` that is not root's.

    Nothing changes for a caller who is not root, for a path that is root's down to its last directory, and for ``None``.

    Raises:
        OSError: a directory on the way cannot be looked at.
    """
    owner = _owner_on_the_way(path) if path is not None and os.geteuid() == _ROOT else None
    if owner is None:
        yield
        return
    with _LOCK:
        groups, group = os.getgroups(), os.getegid()
        try:
            os.setgroups([owner.st_gid])
            os.setegid(owner.st_gid)
            os.seteuid(owner.st_uid)
            yield
        finally:
            os.seteuid(_ROOT)
            os.setegid(group)
            os.setgroups(groups)


def _owner_on_the_way(path: Path) -> os.stat_result | None:
    for directory in reversed(path.absolute().parents):
        try:
            found = os.lstat(directory)
        except (FileNotFoundError, NotADirectoryError):
            return None  # whoever opens the path is told so
        if found.st_uid != _ROOT:
            return found
    return None

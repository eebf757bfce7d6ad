"""A file to lock that nobody but its owner can open: whoever can open a file, if only to read it, can lock it for ever."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MODE = 0o600


def open_lock_file(path: Path) -> int:
    """Open a lock file, made where it is missing; gives its descriptor, without a lock.

    One that others may open, as earlier versions made it, is closed to them. The directory may be another user's, who may
    have put anything there: what is no plain file, or has a second name, keeps its mode.

    Raises:
        OSError: it cannot be opened, or it is a link.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and stat.S_IMODE(found.st_mode) != _MODE:
        try:
            os.fchmod(descriptor, _MODE)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor

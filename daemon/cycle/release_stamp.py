"""The file that says that lifts were taken back without a store: nothing else remembers that while the store is lost.

It lies beside the lock file and belongs to SlurmUser. Where it cannot be written, lifts are taken back as if it never was.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from slurm_soda.daemon.store.owners_rights import owners_rights

STAMP_NAME = "lifts-released"


def stamp_release(state_dir: Path) -> None:
    """Remember that every SiteFactor was reset; a link at its place is not followed."""
    path = state_dir / STAMP_NAME
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError), owners_rights(path):
        os.close(os.open(path, flags, 0o644))


def is_release_stamped(state_dir: Path) -> bool:
    """Whether every SiteFactor was reset without a store, and no sodad has begun since."""
    try:
        return stat.S_ISREG((state_dir / STAMP_NAME).lstat().st_mode)
    except OSError:
        return False


def forget_release(state_dir: Path) -> None:
    """Remove the stamp: there may be new lifts from now on."""
    path = state_dir / STAMP_NAME
    with suppress(OSError), owners_rights(path):
        path.unlink()

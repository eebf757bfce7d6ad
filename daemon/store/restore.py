"""A backup put in the place of an SQLite store, whatever is there: what was there is renamed, and none of it is mixed in.

SQLite would take a write-ahead log that the old store left for that of the backup, and spoil it. The backup itself is only
read: a copy of it is checked, and moved into place when it is sound and on the disk.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import URL

from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.owners_rights import owners_rights
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.store_file import log_files, move_aside

_MODE = 0o640


def restore_store(backup: Path, path: Path) -> Path | None:
    """Put a backup at ``path``; the caller holds the lock of sodad. The file belongs to the owner of its directory.

    Args:
        backup: a store that SQLite has copied; with its write-ahead log beside it where that was copied too. What lies at
            ``path`` itself is taken without its log.
        path: where the store is to be.

    Returns:
        The new name of what was at ``path``; ``None`` where nothing was.

    Raises:
        StoreError: the backup is not a sound store of this or an earlier version, or a file cannot be read or written;
            what is at ``path`` is then as it was.
    """
    path = path.absolute()
    if path.is_symlink():
        raise StoreError(f"{path} is a link, which is not followed", "name the file itself in store.url")
    try:
        with owners_rights(path):
            folder = Path(tempfile.mkdtemp(prefix=f"{path.name}.restore-", dir=path.parent))
    except OSError as error:
        raise StoreError(
            f"{path.parent}: {error.strerror}", "run this as root or SlurmUser, who must own it"
        ) from error
    try:
        copy = folder / path.name
        _copy(backup, copy)
        if backup.absolute() != path and (log := log_files(backup)[0]).exists():
            _copy(log, log_files(copy)[0])
        with owners_rights(path):
            _check(backup, copy)
            if log_files(copy)[0].exists():
                raise StoreError(f"the log of {copy} could not be written into it", "make room there, and try again")
            return _exchange(copy, path)
    except OSError as error:
        raise StoreError(f"{error.filename or path.parent}: {error.strerror}", "nothing was restored") from error
    finally:
        with owners_rights(path):
            shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file with the rights of whoever could have put it there; no link is followed, and no other file is touched."""
    with owners_rights(source):
        read = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(read, "rb") as reading:
        if not stat.S_ISREG(os.fstat(read).st_mode):
            raise StoreError(f"backup {source} is not a file", "name the file that SQLite has copied")
        with owners_rights(target):
            write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        with os.fdopen(write, "wb") as writing:
            os.fchmod(write, _MODE)
            shutil.copyfileobj(reading, writing, 2**20)


def _check(backup: Path, copy: Path) -> None:
    """Whether the copy is a sound store; afterwards all of it is in one file, and at this version."""
    try:
        store = open_store(URL.create("sqlite", database=str(copy)).render_as_string(hide_password=False), create=False)
        try:
            with store.explained():
                _check_pages(store)
        finally:
            store.close()
    except StoreError as error:
        cause = error.found.replace(f"store sqlite:///{copy}", "it")
        raise StoreError(f"backup {backup} is not used: {cause}", "nothing was changed; take another one") from error


def _check_pages(store: Store) -> None:
    with store.read() as session:
        found = session.execute(text("PRAGMA integrity_check(1)")).scalar_one()
    if found != "ok":
        raise StoreError(f"it is damaged: {found.splitlines()[-1]}")


def _exchange(copy: Path, path: Path) -> Path | None:
    """The copy into place. Stopped in between there is no store, which sodad says, and never one with another's log."""
    _flush(copy)
    old = [file for file in (path, *log_files(path)) if os.path.lexists(file)]
    aside = move_aside(path, old)
    _flush(path.parent)
    copy.rename(path)
    _flush(path.parent)
    return aside if old else None


def _flush(path: Path) -> None:
    """To the disk, so that no later step is there before it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

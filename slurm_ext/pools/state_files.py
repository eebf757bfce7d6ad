"""Files that other programs read: whole or not at all, whoever writes them.

Root may write them beside SlurmUser, in directories of SlurmUser and by paths that SlurmUser wrote down. It therefore writes
nothing that SlurmUser could not have written: no link is followed, and what is not SlurmUser's already is left alone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.wire.atomic_files import write_at
from slurm_soda.wire.lock_file import open_lock_file

_MODE = 0o644
_ROOT = 0


def write_state_file(file: Path, text: str, *, beside: Path | None = None, mode: int = _MODE) -> None:
    """Replace a file; readers see the old text or the new one. What root writes belongs to its directory's owner.

    In a directory where only the file may be written (SlurmUser's, in /etc/slurm) it is overwritten in one go instead.

    Args:
        beside: the state directory, where ``file`` is a path that its owner may have chosen. Root then writes only a file of
            the same owner, which stays, in a directory of the same owner or of root.
        mode: who may read it; a file that is overwritten keeps its own.

    Raises:
        SlurmError: it cannot be written, is no regular file, or root must not write it.
    """
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _write_error(file, error) from error
    try:
        found = _stat_file(file, folder)
        owner = _owner(file, folder, found, beside) if os.geteuid() == _ROOT else None
        if found and os.access(file, os.W_OK) and not os.access(file.parent, os.W_OK):
            _overwrite(file.name, folder, found, text)
        else:
            # By the descriptor of the directory that was looked at: by its path it could be another one by now.
            temporary = f".{file.name}.{secrets.token_hex(8)}"
            write_at(folder, file.name, text.encode("utf-8"), temporary=temporary, mode=mode, owner=owner)
    except OSError as error:
        raise _write_error(file, error) from error
    finally:
        os.close(folder)


def _stat_file(file: Path, folder: int) -> os.stat_result | None:
    """The file as it is; ``None``: there is none."""
    try:
        found = os.stat(file.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "no regular file"
        raise SlurmError(f"{file} is {what} and is not written; put a file there itself, with one comment line")
    return found


def _owner(file: Path, folder: int, found: os.stat_result | None, beside: Path | None) -> tuple[int, int]:
    """User and group of what root writes."""
    directory = os.fstat(folder)
    if beside is None:
        return directory.st_uid, directory.st_gid
    theirs = beside.stat()
    present = directory if found is None else found
    if present.st_uid != theirs.st_uid:
        what, word = (file.parent, "make the file, and chown it") if found is None else (file, "chown it")
        raise SlurmError(
            f"{what} belongs to user {present.st_uid} and {beside} to user {theirs.st_uid}, by whose word root does not"
            f" write it; if {file} is the right file, {word} to user {theirs.st_uid}"
        )
    anyones = directory.st_mode & stat.S_IWOTH and not directory.st_mode & stat.S_ISVTX
    if directory.st_uid not in (_ROOT, theirs.st_uid) or anyones:
        raise SlurmError(
            f"{file.parent} is open to others than root and user {theirs.st_uid}; root writes nothing there"
        )
    return theirs.st_uid, present.st_gid


def _overwrite(name: str, folder: int, found: os.stat_result, text: str) -> None:
    descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as stream:
        opened = os.fstat(stream.fileno())
        if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino):
            raise OSError(0, "it was exchanged meanwhile")
        stream.write(text)
        stream.truncate()
        stream.flush()
        os.fsync(stream.fileno())


def _write_error(file: Path, error: OSError) -> SlurmError:
    return SlurmError(f"{file} cannot be written: {error.strerror}; do this as root or SlurmUser")


def remove_state_file(file: Path) -> None:
    """Remove a file, if it is there.

    Raises:
        SlurmError: it is there and stays.
    """
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise SlurmError(f"{file} cannot be removed: {error.strerror}; do this as root or SlurmUser") from error


@contextmanager
def hold_lock(file: Path) -> Iterator[None]:
    """Hold a lock, so that two programs do not change the same at once.

    Raises:
        SlurmError: somebody else holds it, or it cannot be opened.
    """
    try:
        descriptor = open_lock_file(file)
    except OSError as error:
        raise SlurmError(f"{file} cannot be opened: {error.strerror}; do this as root or SlurmUser") from error
    try:
        # The directory may be another user's, who could have put a second name of somebody's file here.
        if os.geteuid() == _ROOT and os.fstat(descriptor).st_nlink == 1:
            owner = file.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SlurmError(f"another sodactl or sodad is changing pools ({file} is locked); try again later") from None
    finally:
        os.close(descriptor)

"""Files that other programs read: whole or not at all, whoever writes them."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_soda.slurm_ext.errors import SlurmError


def write_whole(file: Path, text: str) -> None:
    """Replace a file; readers see the old text or the new one. Its owner stays; a new one belongs to its directory's.

    In a directory where only the file may be written (SlurmUser's, in /etc/slurm) it is overwritten in one go instead.

    Raises:
        SlurmError: it cannot be written.
    """
    if os.access(file, os.W_OK) and not os.access(file.parent, os.W_OK):
        _overwrite(file, text)
        return
    temporary = ""
    try:
        # mkstemp opens with O_EXCL under a name that nobody can guess: the directory may be another user's.
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            if os.geteuid() == 0:
                owner = (file if file.exists() else file.parent).stat()
                os.fchown(stream.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(stream.fileno())
        Path(temporary).replace(file)
    except OSError as error:
        with suppress(OSError):
            if temporary:
                Path(temporary).unlink()
        raise SlurmError(f"{file} cannot be written: {error.strerror}; do this as root or SlurmUser") from error


def _overwrite(file: Path, text: str) -> None:
    try:
        with file.open("r+", encoding="utf-8") as stream:
            stream.write(text)
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise SlurmError(f"{file} cannot be written: {error.strerror}; do this as root or SlurmUser") from error


def remove(file: Path) -> None:
    """Remove a file, if it is there.

    Raises:
        SlurmError: it is there and stays.
    """
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise SlurmError(f"{file} cannot be removed: {error.strerror}; do this as root or SlurmUser") from error


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Hold a lock, so that two programs do not change the same at once.

    Raises:
        SlurmError: somebody else holds it, or it cannot be opened.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise SlurmError(f"{file} cannot be opened: {error.strerror}; do this as root or SlurmUser") from error
    try:
        # The directory may be another user's, who could have put a second name of somebody's file here.
        if os.geteuid() == 0 and os.fstat(descriptor).st_nlink == 1:
            owner = file.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SlurmError(f"another sodactl or sodad is changing arrays ({file} is locked); try again later") from None
    finally:
        os.close(descriptor)

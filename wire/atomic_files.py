"""Files that are replaced whole or not at all, by the descriptor of their directory: no link is followed.

Imported by the prolog, so it imports nothing that the spool does not import.
"""

from __future__ import annotations

import contextlib
import os


def write_at(
    directory: int,
    name: str,
    content: bytes,
    *,
    temporary: str,
    mode: int = 0o600,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
) -> None:
    """Put a file into an open directory, over any earlier one of the same name; readers see the old content or the new.

    Args:
        temporary: name under which it is written, in the same directory. A file of this name is what a dead process left,
            and is removed: of several writers at a time each needs a name of its own.
        mode: of the new file.
        owner: user and group of the new file; those of the process if None.
        durable: on the disk when this returns, file and name.

    Raises:
        OSError: the disk or the directory refuses; the file is as it was.
    """
    try:
        descriptor = _create(temporary, directory)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if mode != 0o600:
                os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, *owner)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    if durable:
        os.fsync(directory)


def _create(name: str, directory: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=directory)
    except FileExistsError:
        os.unlink(name, dir_fd=directory)
        return os.open(name, flags, 0o600, dir_fd=directory)

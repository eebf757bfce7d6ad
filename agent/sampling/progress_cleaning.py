"""Empties users' directories of progress files of everything else, so that they do not fill the file system that they share.

The directories are the users' own: what is in them may be anything, and may change at any moment. No link is followed, every
name is used inside a directory that is already open, and a pass removes a bounded number of names. What a file holds goes
even where a program still has the file open.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Collection

MAX_REMOVED = 200
"""Names in a directory and pass."""
MAX_BLOCK_BYTES = 65_536
"""Of a progress file: a page of any machine."""

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def clean_directory(directory: int, uid: int, kept: Collection[str], max_bytes: int) -> None:
    """Remove what is no short regular file with one of the names ``kept``.

    Args:
        directory: descriptor of the user's directory.
        uid: whose it is.
        kept: names of progress files of runs that are known.
        max_bytes: of such a file.

    Raises:
        OSError: the directory cannot be listed.
    """
    for name in _names(directory, MAX_REMOVED + len(kept)):
        with contextlib.suppress(OSError):  # it goes just now, or with a later pass
            if name not in kept or not _is_short(directory, name, max_bytes):
                _clear_sticky(directory, uid)
                _remove(directory, name, uid)


def _names(directory: int, most: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, most)]


def _is_short(directory: int, name: str, max_bytes: int) -> bool:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISREG(found.st_mode) and found.st_size <= max_bytes and found.st_blocks * 512 <= MAX_BLOCK_BYTES


def _clear_sticky(directory: int, uid: int) -> None:
    """In a sticky directory of the user's only he could remove anything: the agent has not every right of root."""
    if os.fstat(directory).st_mode & stat.S_ISVTX:
        os.fchown(directory, os.geteuid(), -1)
        try:
            os.fchmod(directory, 0o700)
        finally:
            os.fchown(directory, uid, -1)


def _remove(directory: int, name: str, uid: int) -> None:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        _remove_directory(directory, name, uid)
        return
    if stat.S_ISREG(found.st_mode) and found.st_blocks:
        _truncate(directory, name, uid)
    os.unlink(name, dir_fd=directory)


def _truncate(directory: int, name: str, uid: int) -> None:
    """Not what is somebody else's, of which this may be a second name."""
    with contextlib.suppress(OSError):
        file = os.open(name, _FILE_FLAGS, dir_fd=directory)
        try:
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode) and found.st_uid == uid:
                os.ftruncate(file, 0)
        finally:
            os.close(file)


def _remove_directory(directory: int, name: str, uid: int) -> None:
    """One that is not empty loses its files, and its directories move up: however deep they are, later passes find them."""
    inner = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
    try:
        _clear_sticky(inner, uid)
        for below in _names(inner, MAX_REMOVED):
            found = os.stat(below, dir_fd=inner, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                os.rename(below, f".{found.st_ino}", src_dir_fd=inner, dst_dir_fd=directory)
            else:
                _remove(inner, below, uid)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)

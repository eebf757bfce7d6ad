"""The file of an SQLite store: which one was opened, and whether it is still the one at its path."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from sqlalchemy.engine import URL

LOG_SUFFIXES = ("-wal", "-shm")
"""What SQLite adds to the name of a store for its write-ahead log and the index of that."""


class Loss(Enum):
    """What can become of a store while it is open."""

    GONE = auto()
    """Its path leads to no file, or to another one."""
    OVERWRITTEN = auto()
    """Somebody wrote to the file, but not by SQLite."""
    LOG_GONE = auto()
    """Its write-ahead log was removed: others would write another one."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """An open file, as its file system knows it."""

    path: Path
    device: int
    inode: int

    @classmethod
    def at(cls, path: Path) -> StoreFile:
        """The file that is there now.

        Raises:
            OSError: there is none, or this user may not read it. SQLite would only say that it cannot open the file.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return cls(path, found.st_dev, found.st_ino)

    @classmethod
    def seen(cls, path: Path) -> StoreFile:
        """As :meth:`at`, without opening it.

        Raises:
            OSError: there is none.
        """
        found = path.stat()
        return cls(path, found.st_dev, found.st_ino)

    def find_loss(self) -> Loss | None:
        """What the path alone tells."""
        return None if self.is_in_place() else Loss.GONE

    def is_in_place(self) -> bool:
        """Whether the path still leads to this file, so that whoever opens it sees what is written here."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)


def sqlite_path(url: URL) -> Path | None:
    """Where an SQLite database is; ``None`` for other databases and for one in memory."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return None if url.database.startswith("file:") else Path(url.database)


def log_files(path: Path) -> list[Path]:
    """Where the write-ahead log of the store at ``path``, and the index of that, are while it is open."""
    return [path.with_name(path.name + suffix) for suffix in LOG_SUFFIXES]


def move_aside(path: Path, files: Iterable[Path]) -> Path:
    """Rename files of the store at ``path`` to names with the date, under which they still belong together.

    Returns:
        The new name of the store itself, whether it was among them or not.

    Raises:
        OSError: one of them cannot be renamed.
    """
    dated = f"{path.name}.{time.strftime('%Y-%m-%dT%H%M%S')}"
    beside, again = {one.name for one in path.parent.iterdir()}, 1
    aside = dated
    while any(name.startswith(aside) for name in beside):
        again += 1
        aside = f"{dated}.{again}"
    for file in files:
        file.rename(path.with_name(aside + file.name.removeprefix(path.name)))
    return path.with_name(aside)

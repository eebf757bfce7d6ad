"""The file of an SQLite store: which one was opened, and whether it is still the one at its path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL


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

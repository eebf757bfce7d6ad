"""Watch over the files of an SQLite store that this process keeps open, and the only place that writes into ``soda.db``.

With a write-ahead log SQLite writes to ``soda.db-wal``, finds its way in it by ``soda.db-shm``, and changes ``soda.db``
itself only when it copies the log into it, which is called a checkpoint. So a process that makes its own checkpoints knows
when size and date of the file may change. Checkpoints of other processes show in ``soda.db-shm``, whose form is documented:
https://sqlite.org/walformat.html, "The WAL-Index File Format".

No file of the store may be opened and closed here while SQLite has it open: that would end SQLite's locks on it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Engine
from sqlalchemy.engine.interfaces import DBAPIConnection

from slurm_soda.daemon.store.owners_rights import owners_rights
from slurm_soda.daemon.store.store_file import Loss, StoreFile, log_files, move_aside

_CHECKPOINT_FRAMES = 1000
"""Pages in the log that are not yet in the file, from which on they are copied: SQLite's own default."""

_HEADER_BYTES = 48
"""The index begins with two copies of its header, which differ while it is being written."""
_INDEX = struct.Struct("=16xI12x4s60xI28xI")
"""Pages in the log, its first salt (big-endian, unlike the others), pages copied into the file, pages about to be."""

_SHARED_LOCK = (0x40000002, 510)
"""Bytes of the file that each connection to it holds a shared lock on, and the last one to close an exclusive one."""


@dataclass(frozen=True, slots=True)
class _LogState:
    frames: int
    salt: int
    """One more each time when the log begins anew."""
    copied: int
    attempted: int

    @classmethod
    def read(cls, index: int) -> _LogState:
        for _ in range(10):
            raw = os.pread(index, _INDEX.size, 0)
            if raw[:_HEADER_BYTES] == raw[_HEADER_BYTES : 2 * _HEADER_BYTES]:
                break
        frames, salt, copied, attempted = _INDEX.unpack(raw)
        return cls(frames, int.from_bytes(salt, "big"), copied, attempted)

    def is_being_copied(self) -> bool:
        """Or was, by a process that has died."""
        return self.copied < self.attempted

    def was_copied_since(self, then: _LogState) -> bool:
        """Whether a checkpoint has written to the file; the log begins anew only when all of it is there."""
        renewals = (self.salt - then.salt) % 2**32
        if not renewals:
            return (self.copied, self.attempted) != (then.copied, then.attempted)
        return then.copied < then.frames or renewals > 1 or self.attempted > 0


class StoreGuard:
    """The files of one open store. Safe to share between threads."""

    def __init__(self, engine: Engine, file: StoreFile) -> None:
        """Begin to watch; ``engine`` makes no checkpoints by itself.

        Raises:
            OSError: the store keeps no write-ahead log, or it is not readable.
        """
        self.file = file
        self._lock = threading.Lock()
        self._real = file.path.resolve()  # SQLite keeps the log beside the file, not beside a link to it
        with owners_rights(self._real):
            kept = engine.raw_connection()  # the log is removed with the last connection, so this one stays
            kept.detach()
            self._connection: DBAPIConnection | None = kept.dbapi_connection
            self._checkpoint()
            self._log = tuple(StoreFile.seen(path) for path in log_files(self._real))
            self._index = os.open(self._log[-1].path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._noted_state, self._noted_content = self._look()

    def find_loss(self) -> Loss | None:
        """What has become of the store under us; ``None``: it is as this process and other users of SQLite left it."""
        with self._lock:
            return self._find_loss()

    def checkpoint_when_due(self) -> None:
        """Copy the log into the file if it is long, and the file is still ours. A failure is no harm: the log grows on."""
        with self._lock:
            if self._connection is None or self._find_loss() is not None:
                return
            state = _LogState.read(self._index)
            if state.frames - state.copied >= _CHECKPOINT_FRAMES:
                self._checkpoint()
                self._noted_state, self._noted_content = self._look()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Around the end of all other connections: SQLite's own checkpoint at the last one spares a file that is not ours.

        The log that was left over would be taken for that file's; it is moved aside.
        """
        with self._lock:
            if self._connection is None:
                yield
                return
            loss, spared = self._find_loss(), -1
            ours = [file.path for file in self._log if file.is_in_place()]
            with owners_rights(self._real), suppress(OSError):
                if loss is Loss.OVERWRITTEN:
                    spared = os.open(self._real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                    _share(spared)
            self._connection.close()
            self._connection = None
            try:
                yield
            finally:
                for fd in (self._index, spared):
                    if fd >= 0:
                        os.close(fd)
            if loss in (Loss.GONE, Loss.OVERWRITTEN):
                with owners_rights(self._real), suppress(OSError):
                    move_aside(self._real, [path for path in ours if path.exists()])

    def _find_loss(self) -> Loss | None:
        loss = self.file.find_loss()
        if loss is not None or self._connection is None:
            return loss
        if not all(file.is_in_place() for file in self._log):
            return Loss.LOG_GONE
        # In this order: whoever makes a checkpoint says so in the index before he writes to the file.
        state, content = self._look()
        if content != self._noted_content:
            now = _LogState.read(self._index)
            if not (now.was_copied_since(self._noted_state) or self._noted_state.is_being_copied()):
                return Loss.OVERWRITTEN
        self._noted_state, self._noted_content = state, content
        return None

    def _checkpoint(self) -> None:
        with suppress(sqlite3.Error), owners_rights(self._real):
            cast("sqlite3.Connection", self._connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _look(self) -> tuple[_LogState, tuple[int, int]]:
        return _LogState.read(self._index), self._content()

    def _content(self) -> tuple[int, int]:
        """What changes with every write to the file itself; zeros where it cannot be seen."""
        try:
            found = self._real.stat()
        except OSError:
            return 0, 0
        return found.st_size, found.st_mtime_ns


def _share(fd: int) -> None:
    """Take a shared lock that keeps SQLite, in this process too, from being alone with the file.

    SQLite's own locks belong to the process and do not exclude each other; this one belongs to the descriptor.
    """
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, *_SHARED_LOCK, 0))

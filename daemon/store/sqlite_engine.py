"""The store in a file (SQLite): one for one controller.

A write takes the write lock at its beginning, because a read that turns into a write half-way fails at once when another
process wrote in between, whatever the busy time-out.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection

from slurm_soda.daemon.store.owners_rights import owners_rights
from slurm_soda.daemon.store.store_file import sqlite_path

_BUSY_TIMEOUT_MS = 10_000
_SYNCHRONOUS = "FULL"
"""A change must be on disk before Slurm is told of it, whatever happens to the machine next."""


def open_sqlite(url: URL, write_option: str, *, checkpoints: bool = True) -> Engine:
    """An engine for a database in a file, or in memory.

    Args:
        url: of the database.
        write_option: execution option of connections that write.
        checkpoints: whether a write that makes the log long copies it into the file; the last connection does in any case.
    """
    engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000})
    path = sqlite_path(url)
    if path is None:
        event.listen(engine, "connect", lambda connection, _record: _prepare_connection(connection))
    else:

        def connect(dialect: Dialect, _record: Any, arguments: list[Any], options: dict[str, Any]) -> DBAPIConnection:
            with owners_rights(path):
                connection = _connect_existing(dialect, arguments, options)
                _prepare_connection(cast("sqlite3.Connection", connection))
                if not checkpoints:
                    cast("sqlite3.Connection", connection).execute("PRAGMA wal_autocheckpoint=0")
            return connection

        event.listen(engine, "do_connect", connect)

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(write_option)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "begin", begin)
    return engine


def _connect_existing(dialect: Dialect, arguments: list[Any], options: dict[str, Any]) -> DBAPIConnection:
    """Open a file that is there. SQLite would make a missing one: an empty store that everybody may read."""
    return dialect.connect(f"{Path(arguments[0]).as_uri()}?mode=rw", **{**options, "uri": True})


def _prepare_connection(connection: sqlite3.Connection) -> None:
    # The driver's own transactions begin late and not before DDL: we say BEGIN ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA synchronous={_SYNCHRONOUS}")
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError:
        # A reader without the right to write keeps whatever mode the file has; a writer fails at its first write.
        if _is_writable(cursor):
            raise
    cursor.close()


def _is_writable(cursor: sqlite3.Cursor) -> bool:
    path = cursor.execute("PRAGMA database_list").fetchone()[2]
    return not path or (os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK))

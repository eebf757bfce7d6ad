"""The store on a database server (PostgreSQL): one for several controllers.

A writer takes one lock of the database at its beginning, so that writers follow each other as on SQLite. Nobody may keep it
for long: the server ends the session of a client that pauses within a transaction, so that a controller which stands still
or has lost its network keeps no other one from taking over.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Engine,
    cast,
    create_engine,
    event,
    extract,
    func,
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import Session

WAIT_S = 10
"""Longest wait for a connection, for the lock of writers, for the server's answer and, on its side, for a client."""

_WRITERS_LOCK = 0x50DA
"""Key of the lock that every writer of this database takes."""

_SESSION = {
    "idle_in_transaction_session_timeout": f"{WAIT_S}s",
    "lock_timeout": f"{WAIT_S}s",
    "tcp_keepalives_idle": WAIT_S,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    # A change must be on the server's disk before Slurm is told of it.
    "synchronous_commit": "on",
}

_HIDDEN = "hidden"


def open_server(url: URL, write_option: str) -> Engine:
    """An engine for a database server.

    Args:
        url: of the database.
        write_option: execution option of connections that write.

    Raises:
        ArgumentError: there is no such kind of database.
        ImportError, NoSuchModuleError: its driver is not installed.
    """
    postgresql = url.get_backend_name() == "postgresql"
    engine = create_engine(
        url,
        pool_pre_ping=True,
        connect_args=_connection_settings(url) if postgresql else {},
        isolation_level="REPEATABLE READ",
    )

    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(write_option):
            connection.execute(select(func.pg_advisory_xact_lock(_WRITERS_LOCK)))

    if postgresql:
        event.listen(engine, "begin", begin)
    return engine


def _connection_settings(url: URL) -> dict[str, Any]:
    settings = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    return {
        "connect_timeout": WAIT_S,
        "keepalives_idle": WAIT_S,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": WAIT_S * 1000,
        "application_name": "slurm-soda",
        "options": f"{url.query.get('options', '')} {settings}".strip(),
    }


def is_server(session: Session) -> bool:
    """Whether the store is on a server, which several controllers can share."""
    return session.get_bind().dialect.name == "postgresql"


def server_time() -> ColumnElement[float]:
    """Unix seconds by the server's clock, at the instant of asking and not of the transaction's beginning."""
    return cast(extract("epoch", func.clock_timestamp()), Double())


def store_now_s(session: Session, now_s: float) -> float:
    """Unix seconds by the clock of the store; ``now_s`` is this host's."""
    return float(session.execute(select(server_time())).scalar_one()) if is_server(session) else now_s


def shown_url(url: URL) -> str:
    """A URL as a person may see it: without passwords, wherever they stand in it."""
    secret = [name for name in url.query if "password" in name.lower()]
    shown = url.update_query_dict(dict.fromkeys(secret, _HIDDEN)) if secret else url
    return shown.render_as_string(hide_password=True)


def has_password(url: str) -> bool:
    """Whether a store's URL holds a password, so that its file is not for everybody."""
    parsed = make_url(url)
    return bool(parsed.password) or any("password" in name.lower() for name in parsed.query)

"""A PostgreSQL server of one's own, in a temporary directory: for tests, and for measurements of the shared store."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

from psycopg import Connection, OperationalError, connect

PASSWORD = "pg-secret"
_START_S = 30.0
_SETTINGS = {
    # Nobody needs this database after a crash of the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "unix_socket_directories": "",
}


class PostgresqlMissingError(Exception):
    """PostgreSQL is not installed here."""


def _program(name: str) -> str:
    """Where a program of the server is: Debian keeps them off the PATH."""
    found = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    if not any(found):
        raise PostgresqlMissingError("PostgreSQL is not installed; on Debian or Ubuntu: apt-get install postgresql")
    return next(place for place in reversed(found) if place)


def _user() -> str | None:
    """Whom the server runs as: it refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _dying_with_us() -> list[str]:
    """A test run that is killed leaves no server behind."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "QUIT"] if setpriv else []


class PostgresqlServer:
    """A running server, and databases in it."""

    def __init__(self, folder: Path, address: str = "", network: str = "") -> None:
        """Make it in an empty folder.

        Args:
            folder: where.
            address: another one of this machine's, on which it listens as well.
            network: whose machines may connect there, such as ``172.20.0.0/16``.

        Raises:
            PostgresqlMissingError: there is no PostgreSQL on this machine.
        """
        self._folder, self._data = folder, folder / "data"
        self._names = count(1)
        self._user = _user()
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        options = ("--auth=scram-sha-256", "--username=soda", f"--pwfile={password}", "--encoding=UTF8", "--locale=C")
        self._run([_program("initdb"), "--no-sync", *options, "-D", str(self._data)])
        if network:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all soda {network} scram-sha-256\n")
        addresses = {"listen_addresses": ",".join(filter(None, ("127.0.0.1", address)))}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        settings = [f"--{name}={value}" for name, value in (_SETTINGS | addresses).items()]
        self.process = subprocess.Popen(
            [*_dying_with_us(), _program("postgres"), "-D", str(self._data), f"--port={self.port}", *settings],
            user=self._user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._admin = self._connect()

    def _connect(self) -> Connection:
        """A connection that stays, for statements about databases, as soon as the server takes one."""
        until_s = time.monotonic() + _START_S
        while True:
            with suppress(OperationalError):
                return connect(self.url("postgres").replace("+psycopg", ""), autocommit=True)
            if time.monotonic() > until_s:
                raise TimeoutError(f"PostgreSQL did not start within {_START_S:.0f} s")
            time.sleep(0.05)

    def _run(self, argv: Sequence[str]) -> None:
        subprocess.run(argv, user=self._user, cwd=self._folder, capture_output=True, check=True)

    def url(self, database: str) -> str:
        """SQLAlchemy's URL of a database."""
        return f"postgresql+psycopg://soda:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template0") -> str:
        """A new database, as a copy of another one; its URL."""
        name = f"soda{next(self._names)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def close(self) -> None:
        """Stop it at once, and remove it."""
        self._admin.close()
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def shared_server() -> PostgresqlServer:
    """One server for all of this process; it ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="soda-postgresql-"))
    folder.chmod(0o755)
    try:
        server = PostgresqlServer(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    atexit.register(server.close)
    return server


@cache
def _made() -> str:
    """Name of a database with an empty store, made by the migrations."""
    from slurm_soda.daemon.store.engine import open_store  # noqa: PLC0415 - slow to import

    url = shared_server().create()
    open_store(url).close()
    return url.rpartition("/")[2]


def new_store_url() -> str:
    """URL of a new database with an empty store."""
    return shared_server().create(_made())

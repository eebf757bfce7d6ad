"""Opening the store: one database, SQLite by default, always at the schema version that this code knows.

A read is one transaction over one consistent picture; a write is one transaction that is there as a whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.owners_rights import owners_rights
from slurm_soda.daemon.store.server import open_server, shown_url
from slurm_soda.daemon.store.sqlite_engine import open_sqlite
from slurm_soda.daemon.store.store_errors import (
    StoreDamagedError,
    StoreDeniedError,
    StoreError,
    StoreForeignError,
    StoreLogRemovedError,
    StoreMissingError,
    StoreRemovedError,
    StoreUnusableError,
    StoreVersionError,
)
from slurm_soda.daemon.store.store_failures import (
    explain_failure,
    first_line,
    is_damaged,
    is_denied,
    rights_remedy,
)
from slurm_soda.daemon.store.store_file import Loss, StoreFile, sqlite_path
from slurm_soda.daemon.store.store_guard import StoreGuard
from slurm_soda.slurm_ext.errors import SodaError

SCHEMA_VERSION = "0006"
"""Newest revision in ``migrations/versions``; a constant, so that opening an up-to-date store need not import alembic."""

MIGRATIONS = Path(__file__).parent / "migrations"

_WRITE = "soda_write"

_VERSION_TABLE = "alembic_version"
_OWN_TABLES = {"epoch", "admin_setting"}
"""Every version of a store has these."""


@dataclass(frozen=True, slots=True)
class Store:
    """An open store. Safe to share between threads; every ``with`` block has a connection of its own."""

    engine: Engine
    url: str
    """As a person may see it: the password is hidden."""
    file: StoreFile | None = field(default=None, kw_only=True)
    """What was opened; ``None`` where it is no file."""
    guard: StoreGuard | None = field(default=None, kw_only=True)
    """Sodad's own, who has it open for long."""

    def check_in_place(self) -> None:
        """Make sure that what is written here is seen by whoever opens the store.

        Raises:
            StoreRemovedError: the file is no longer at its path, or was overwritten.
            StoreLogRemovedError: its write-ahead log is no longer there.
        """
        if self.file is None:
            return
        loss = (self.guard or self.file).find_loss()
        if loss is Loss.LOG_GONE:
            raise StoreLogRemovedError(self.url, self.file.path)
        if loss is not None:
            raise StoreRemovedError(
                f"store {self.url} was removed or replaced while sodad had it open, so sodad changes nothing more",
                self.file.path,
            )

    def checkpoint_when_due(self) -> None:
        """Keep the write-ahead log short; to be called again and again by whoever opened the store with a guard."""
        if self.guard is not None:
            self.guard.checkpoint_when_due()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session over one consistent picture of the store; changes made in it are thrown away."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits when the block ends well, and leaves no trace when it raises.

        Raises:
            StoreRemovedError: the file is no longer at its path.
        """
        self.check_in_place()
        engine = _writing(self.engine)
        with Session(engine, expire_on_commit=False) as session, session.begin():
            yield session

    def try_write(self) -> None:
        """Write to the disk without changing anything, to see whether that works."""
        with self.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = version_num"))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A block whose database errors are told as people need them.

        Raises:
            StoreError: in place of the database's own error.
        """
        try:
            yield
        except SQLAlchemyError as error:
            raise self.error_of(error) from error

    def error_of(self, error: SQLAlchemyError) -> StoreError:
        """A database error with its cause and remedy, in one line."""
        return _store_error(self.url, self.file, error)

    @property
    def is_shared(self) -> bool:
        """Whether several controllers can use it: it is on a server, not in a file."""
        return self.engine.dialect.name != "sqlite"

    def close(self) -> None:
        """Close every pooled connection."""
        with nullcontext() if self.guard is None else self.guard.closing():
            self.engine.dispose()


def open_store(url: str, *, migrate: bool = True, create: bool = True, guarded: bool = False) -> Store:
    """Open the database at ``url``, an SQLAlchemy URL such as ``sqlite:////var/lib/slurm-soda/soda.db``.

    Args:
        url: where the store is.
        migrate: bring an older or empty store to this version; otherwise refuse it.
        create: make an SQLite file that does not exist; otherwise refuse, and refuse to fill an empty one.
        guarded: watch over a file, and keep its log short by :meth:`Store.checkpoint_when_due` only.

    Raises:
        StoreMissingError: ``create`` is false and there is no such file.
        StoreForeignError: the file is an SQLite database of another program.
        StoreVersionError: a newer slurm-soda wrote the store, or it is older and ``migrate`` is false.
        StoreError: the URL is wrong, or the database does not answer or is not one of ours.
    """
    parsed = _parse(url)
    shown = shown_url(parsed)
    file = _prepare_file(parsed, shown, create=create)
    try:
        engine = _engine(parsed, guarded=guarded)
    except (ImportError, NoSuchModuleError, ArgumentError) as error:
        raise StoreError(f"store {shown}: {first_line(error)}; install the driver or correct store.url") from error
    try:
        with engine.connect() as connection:
            _check_kind(connection, shown, file, create=create)
        _check_version(engine, shown, migrate=migrate)
        guard = _guard(engine, shown, file) if guarded and file is not None else None
    except SQLAlchemyError as error:
        engine.dispose()
        raise _store_error(shown, file, error) from error
    except SodaError:
        engine.dispose()
        raise
    return Store(engine, shown, file=file, guard=guard)


def store_path(url: str) -> Path | None:
    """Where the database at ``url`` is a file; ``None`` for one on a server or in memory.

    Raises:
        StoreError: the URL is wrong.
    """
    return sqlite_path(_parse(url))


def version_of(engine: Engine) -> str | None:
    """Revision that the database is at; ``None`` for one without our tables."""
    with engine.connect() as connection:
        return _version(connection)


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        # The text may hold a password, so it is not repeated.
        raise StoreError(
            "store.url is not a database URL; it looks like sqlite:////var/lib/slurm-soda/soda.db"
        ) from error


def _prepare_file(url: URL, shown: str, *, create: bool) -> StoreFile | None:
    """Make the SQLite file with narrow rights, for the directory's owner: root must not lock out a daemon of SlurmUser."""
    path = sqlite_path(url)
    if path is None:
        return None
    try:
        with owners_rights(path):
            if path.is_dir():
                raise StoreUnusableError(f"store {shown} is a directory", "move it away, or correct store.url")
            if path.exists():
                # SQLite itself would only say that it is unable to open the file.
                os.close(os.open(path, os.O_RDONLY))
            elif create:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o640))
            else:
                raise StoreMissingError(f"store {shown} does not exist", path)
            return StoreFile.at(path)
    except FileExistsError as error:
        if path.is_symlink():
            raise StoreError(f"store {shown} is a link that leads nowhere", "remove it") from error
        return StoreFile.at(path)  # another process has made it in this very moment
    except PermissionError as error:
        if os.geteuid() == 0:
            owner = "the owner of its directory, with whose rights root opens it"
            raise StoreError(f"store {shown} may not be read by {owner}", "make it his, and no link") from error
        raise StoreDeniedError(f"store {shown} may not be opened by this user", rights_remedy(path)) from error
    except OSError as error:
        raise StoreError(
            f"store {shown} cannot be opened: {error.strerror}", "make its directory, owned by SlurmUser"
        ) from error


def _engine(url: URL, *, guarded: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        return open_sqlite(url, _WRITE, checkpoints=not guarded)
    return open_server(url, _WRITE)


def _guard(engine: Engine, shown: str, file: StoreFile) -> StoreGuard | None:
    try:
        return StoreGuard(engine, file)
    except FileNotFoundError:
        return None  # on a file system without shared memory SQLite keeps no such log
    except OSError as error:
        found = f"the write-ahead log of store {shown} cannot be read: {error.strerror}"
        raise StoreError(found, rights_remedy(file.path)) from error


def _writing(engine: Engine) -> Engine:
    """The same engine for a transaction that writes."""
    options: dict[str, Any] = {_WRITE: True}
    if engine.dialect.name != "sqlite":
        # Each statement sees what others committed before it, and the first one waits for them.
        options["isolation_level"] = "READ COMMITTED"
    return engine.execution_options(**options)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _check_kind(connection: Connection, shown: str, file: StoreFile | None, *, create: bool) -> None:
    """Refuse a file that cannot be a store of ours, and an empty one that was not to be made; a server is asked nothing."""
    if file is None:
        return
    tables = inspect(connection).get_table_names()
    if not create and not tables:
        raise StoreMissingError(f"store {shown} is empty", file.path)
    ours = _VERSION_TABLE in tables and not _OWN_TABLES.isdisjoint(tables)
    if set(tables) - {_VERSION_TABLE} and not ours:
        raise StoreForeignError(
            f"store {shown} is a database of another program (its tables: {', '.join(sorted(tables)[:3])})",
            f"point store.url to a file of slurm-soda's own, or move {file.path} away",
        )


def _check_version(engine: Engine, shown: str, *, migrate: bool) -> None:
    version = version_of(engine)
    if version == SCHEMA_VERSION:
        return
    if version is not None and version not in known_versions():
        raise StoreVersionError(
            f"store {shown} is at version {version!r}, newer than the {SCHEMA_VERSION!r} of this program",
            "upgrade slurm-soda, or point store.url to another store",
        )
    if not migrate:
        have = "empty" if version is None else f"at version {version!r}"
        raise StoreVersionError(
            f"store {shown} is {have}, not yet {SCHEMA_VERSION!r}", "restart sodad, which upgrades it"
        )
    try:
        _migrate(engine)
    except SQLAlchemyError:
        # Another process may have upgraded the same store in this very moment: only the outcome counts.
        if version_of(engine) != SCHEMA_VERSION:
            raise


def known_versions() -> set[str]:
    """Every revision that this program can read or upgrade from; by their files, as only sodad has alembic."""
    return {path.name[1:5] for path in (MIGRATIONS / "versions").glob("r*.py")}


def migrate_to(store: Store, revision: str) -> None:
    """Take the store back to an earlier revision: what only later ones have is lost. As a whole, or not at all.

    Raises:
        StoreError: this version knows no such revision.
    """
    if revision not in known_versions():
        raise StoreError(f"revision {revision!r} of the store is not known here", f"one of {sorted(known_versions())}")
    _migrate(store.engine, revision)


def _migrate(engine: Engine, revision: str | None = None) -> None:
    """Forward to the newest revision, or back to this one."""
    from alembic import command  # noqa: PLC0415 - slow to import, seldom needed
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with _writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        if revision is None:
            command.upgrade(config, "head")
        else:
            command.downgrade(config, revision)


def _store_error(shown: str, file: StoreFile | None, error: SQLAlchemyError) -> StoreError:
    cause, remedy = explain_failure(error, None if file is None else file.path)
    kind = StoreDamagedError if is_damaged(error) else StoreDeniedError if is_denied(error) else StoreError
    return kind(f"store {shown} cannot be used: {cause}", remedy)

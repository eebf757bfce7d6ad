"""``sodad --prepare-for REVISION``: before another version takes over, the store is backed up, and taken back if need be."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import HostLock
from slurm_soda.daemon.logs import LOGGER
from slurm_soda.daemon.main import EXIT_ERROR, EXIT_REFUSED, main
from slurm_soda.daemon.store import preparation
from slurm_soda.daemon.store.engine import SCHEMA_VERSION, known_versions, open_store
from slurm_soda.daemon.store.preparation import BACKUPS_KEPT, prepare_store
from slurm_soda.daemon.store.store_errors import StoreError

OLDER = sorted(known_versions() - {SCHEMA_VERSION})
NEWER = "9999"


@pytest.fixture
def path(made_store: Path, tmp_path: Path) -> Path:
    """A store with a row that every revision has, and one that only the newest has."""
    path = tmp_path / "soda.db"
    path.write_bytes(made_store.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO admin_setting VALUES ('mode', 'enforce', 0, 'me')")
        connection.execute("INSERT INTO service (owner, name, report, reported_at_s) VALUES ('alice', 'chat', '{}', 1)")
    return path


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def revision_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@pytest.mark.parametrize("revision", OLDER)
def test_it_is_taken_back_and_forward_again(path: Path, revision: str) -> None:
    done = prepare_store(url(path), revision)
    assert done.taken_back_from == SCHEMA_VERSION
    assert (revision_of(path), rows(path, "admin_setting")) == (revision, 1)
    assert done.backup is not None
    assert (revision_of(done.backup), rows(done.backup, "service")) == (SCHEMA_VERSION, 1)
    assert stat.S_IMODE(done.backup.stat().st_mode) == 0o640
    open_store(url(path)).close()
    assert (revision_of(path), rows(path, "admin_setting"), rows(path, "service")) == (
        SCHEMA_VERSION,
        1,
        int(revision >= "0004"),  # which brought the table
    )


@pytest.mark.parametrize("revision", [SCHEMA_VERSION, NEWER])
def test_a_version_that_knows_it_gets_it_as_it_is(path: Path, revision: str) -> None:
    done = prepare_store(url(path), revision)
    assert (done.taken_back_from, revision_of(path), rows(path, "service")) == (None, SCHEMA_VERSION, 1)
    assert done.backup is not None


def test_an_older_store_of_an_older_version_stays_as_it_is_for_it(path: Path) -> None:
    """This version was installed, and never started."""
    prepare_store(url(path), OLDER[0])
    assert prepare_store(url(path), OLDER[0]).taken_back_from in (None, SCHEMA_VERSION)
    assert (revision_of(path), rows(path, "admin_setting")) == (OLDER[0], 1)


def test_where_there_is_no_store_there_is_nothing_to_do(tmp_path: Path) -> None:
    done = prepare_store(url(tmp_path / "soda.db"), OLDER[0])
    assert (done.backup, done.taken_back_from, list(tmp_path.iterdir())) == (None, None, [])


def test_what_only_the_log_holds_is_in_the_backup(path: Path) -> None:
    writer = sqlite3.connect(path)
    try:
        writer.execute("PRAGMA journal_mode=WAL")
        with writer:
            writer.execute("INSERT INTO admin_setting VALUES ('policy', 'soda', 0, 'me')")
        done = prepare_store(url(path), NEWER)
        assert done.backup is not None
        assert rows(done.backup, "admin_setting") == 2
    finally:
        writer.close()


def test_the_newest_backups_stay(path: Path) -> None:
    made = [prepare_store(url(path), NEWER).backup for _ in range(BACKUPS_KEPT + 2)]
    assert sorted(path.parent.glob("*.backup")) == made[-BACKUPS_KEPT:]


@pytest.mark.parametrize("revision", ["", "4", "head", "base", "0003; x", "00003"])
def test_what_is_no_revision_is_refused(path: Path, revision: str) -> None:
    with pytest.raises(StoreError, match="expected four digits"):
        prepare_store(url(path), revision)
    assert (revision_of(path), list(path.parent.glob("*.backup"))) == (SCHEMA_VERSION, [])


def test_a_revision_that_never_was_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match="'0000' of the store is not known"):
        prepare_store(url(path), "0000")
    assert revision_of(path) == SCHEMA_VERSION


def test_without_a_backup_nothing_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(preparation, "_flush", full)
    with pytest.raises(StoreError, match="No space left on device"):
        prepare_store(url(path), OLDER[0])
    assert (revision_of(path), list(path.parent.glob("*.backup"))) == (SCHEMA_VERSION, [])
    assert prepare_store(url(path), OLDER[0], backup=False).backup is None
    assert revision_of(path) == OLDER[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which makes files for others")
def test_the_backup_belongs_to_the_directorys_owner(made_store: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # pytest's own folders are root's alone
        path = Path(folder) / "soda.db"
        path.write_bytes(made_store.read_bytes())
        for one in (path.parent, path):
            os.chown(one, 65534, 65534)
        done = prepare_store(url(path), NEWER)
        assert done.backup is not None
        assert done.backup.stat().st_uid == 65534


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "propagate", LOGGER.propagate)
    level = LOGGER.level
    yield
    LOGGER.setLevel(level)


@pytest.mark.usefixtures("quiet")
def test_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = path.with_name("soda.toml")
    config.write_text(f'state_dir = "{path.parent}"\n[store]\nurl = "sqlite:///{path}"\n')
    argv = ["--config", str(config), "--prepare-for", OLDER[-1]]
    assert main(argv) == 0
    said = capsys.readouterr().err
    assert f"backed up to {path}.2" in said
    assert f"taken back from revision {SCHEMA_VERSION} to {OLDER[-1]}" in said
    assert main([*argv[:-1], "x"]) == EXIT_ERROR
    capsys.readouterr()
    with HostLock(path.parent):
        assert main(argv) == EXIT_REFUSED
    assert revision_of(path) == OLDER[-1]

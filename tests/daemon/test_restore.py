"""``sodad --restore FILE``: the backup is in force afterwards, and until then everything is as it was."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import HostLock, had_store
from slurm_soda.daemon.logs import LOGGER
from slurm_soda.daemon.main import EXIT_ERROR, EXIT_REFUSED, main
from slurm_soda.daemon.store import restore as restore_module

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def site(fresh_store: Path) -> Path:
    (fresh_store / "soda.toml").write_text(
        f'state_dir = "{fresh_store}"\nwake_path = "{fresh_store}/wake"\n[store]\nurl = "sqlite:///{fresh_store}/soda.db"\n'
    )
    put(fresh_store / "soda.db", "lost")
    return fresh_store


@pytest.fixture
def backup(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("backups") / "monday.db"
    path.write_bytes(made_store.read_bytes())
    put(path, "kept")
    return path


@pytest.fixture
def restore(
    site: Path, backup: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """In this process: gives the exit status and what it said."""
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "propagate", LOGGER.propagate)
    level = LOGGER.level

    def restore(file: Path = backup) -> tuple[int, str]:
        return main(["--config", str(site / "soda.toml"), "--restore", str(file)]), capsys.readouterr().err

    yield restore
    LOGGER.setLevel(level)


def put(path: Path, key: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO admin_setting VALUES (?, 'v', 0, 'me')", (key,))


def keys(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [key for (key,) in connection.execute("SELECT key FROM admin_setting ORDER BY key")]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("soda.db")}


LEAVE_A_LOG = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE t (x)")
connection.execute("INSERT INTO admin_setting VALUES ('in the log', 'v', 0, 'me')")
connection.commit()
os._exit(0)
"""


def leave_log(path: Path) -> None:
    """As a process does that is killed."""
    subprocess.run([sys.executable, "-c", LEAVE_A_LOG, str(path)], check=True)


def test_the_log_of_the_lost_store_is_not_taken_for_the_backup_s(site: Path, restore: Run, backup: Path) -> None:
    leave_log(site / "soda.db")
    (site / "soda.db").unlink()
    before = backup.read_bytes()
    status, said = restore()
    assert status == 0
    assert f"{site}/soda.db is restored from {backup}; what was there is now {site}/soda.db.2" in said
    assert keys(site / "soda.db") == ["kept"]
    assert backup.read_bytes() == before
    assert had_store(site, site / "soda.db")
    assert stat.S_IMODE((site / "soda.db").stat().st_mode) == 0o640


def test_what_was_there_is_still_a_store_under_its_new_name(site: Path, restore: Run) -> None:
    leave_log(site / "soda.db")
    aside = restore()[1].split(" is now ")[1].split(";")[0]
    assert keys(Path(aside)) == ["in the log", "lost"]
    assert restore()[0] == 0  # a second time within a second
    assert len({path.name.split("-wal")[0] for path in site.glob("soda.db.2*")}) == 2


@pytest.mark.parametrize("moved", [True, False])
def test_a_backup_that_was_put_at_the_path_already(site: Path, restore: Run, backup: Path, moved: bool) -> None:
    """It may be the only copy."""
    leave_log(site / "soda.db")
    if moved:
        backup.rename(site / "soda.db")
    else:
        (site / "soda.db").write_bytes(backup.read_bytes())
    assert restore(site / "soda.db")[0] == 0
    assert keys(site / "soda.db") == ["kept"]


def test_a_backup_with_a_log_of_its_own(site: Path, restore: Run, backup: Path) -> None:
    leave_log(backup)
    assert restore()[0] == 0
    assert keys(site / "soda.db") == ["in the log", "kept"]
    assert not list(site.glob("soda.db-*"))


def damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'admin_setting'").fetchone()
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(raw)


def make_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mail (x)")


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0009'")


def make_link(path: Path) -> None:
    path.rename(path.with_name("real.db"))
    path.symlink_to("real.db")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (damage, "monday.db is not used: it"),
        (make_foreign, "is a database of another program"),
        (make_newer, "newer than"),
        (lambda path: path.write_bytes(b""), "monday.db is not used: it is empty"),
        (lambda path: path.write_text("no database" * 99), "file is not a database"),
        (Path.unlink, "monday.db: No such file"),
        (make_link, "monday.db: Too many levels of symbolic links"),
        (make_pipe, "monday.db is not a file"),
    ],
    ids=["damaged", "foreign", "newer", "empty", "no database", "missing", "link", "pipe"],
)
def test_what_is_no_sound_backup_changes_nothing(
    site: Path, restore: Run, backup: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(backup)
    before = content(site)
    status, err = restore()
    assert status == EXIT_ERROR
    assert said in err
    assert err.count("\n") == 1
    assert content(site) == before


def test_while_a_sodad_lives_nothing_is_restored(site: Path, restore: Run) -> None:
    before = content(site)
    with HostLock(site):
        status, said = restore()
    assert status == EXIT_REFUSED
    assert "stop that one first" in said
    assert content(site) == before


def test_a_store_that_is_a_link_is_not_followed(site: Path, restore: Run) -> None:
    (site / "soda.db").rename(site / "real.db")
    (site / "soda.db").symlink_to("real.db")
    assert "is a link, which is not followed" in restore()[1]
    assert keys(site / "real.db") == ["lost"]


def test_one_that_is_stopped_in_between_leaves_no_mixture(
    site: Path, restore: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_log(site / "soda.db")

    def stop(path: Path, files: list[Path]) -> Path:
        files[0].rename(path.with_name("soda.db.stopped"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restore_module, "move_aside", stop)
        with pytest.raises(KeyboardInterrupt):
            restore()
    assert not (site / "soda.db").exists()
    assert restore()[0] == 0
    assert keys(site / "soda.db") == ["kept"]


def test_a_store_on_a_server_is_not_for_us(site: Path, restore: Run) -> None:
    config = (site / "soda.toml").read_text()
    (site / "soda.toml").write_text(
        config.replace(f"sqlite:///{site}/soda.db", "postgresql+psycopg://soda@127.0.0.1:9/db")
    )
    assert "the tools of its database server" in restore()[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_restores_a_backup_of_its_own_for_slurm_user(made_store: Path) -> None:
    with tempfile.TemporaryDirectory() as backups, tempfile.TemporaryDirectory() as folder:  # tmp_path is for one user
        backup, site = Path(backups) / "root.db", Path(folder)
        backup.write_bytes(made_store.read_bytes())
        backup.chmod(0o600)
        (site / "soda.toml").write_text(f'state_dir = "{site}"\n[store]\nurl = "sqlite:///{site}/soda.db"\n')
        os.chown(site, 12345, 12345)
        command = [sys.executable, "-m", "slurm_soda.daemon.main", "--config", str(site / "soda.toml")]
        subprocess.run([*command, "--restore", str(backup)], check=True)
        assert {path.name for path in site.iterdir()} == {"soda.toml", "soda.db", "sodad.lock"}
        for name in ("soda.db", "sodad.lock"):
            assert ((site / name).stat().st_uid, (site / name).stat().st_gid) == (12345, 12345)


def test_a_running_sodad_whose_store_was_moved_away_ends_and_begins_with_the_backup(site: Path, backup: Path) -> None:
    """The whole way, with the log that the living sodad has open."""
    command = [sys.executable, "-m", "slurm_soda.daemon.main", "--config", str(site / "soda.toml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        next(line for line in process.stderr if "no-action" in line)
        (site / "soda.db").unlink()
        refused = subprocess.run([*command, "--restore", str(backup)], check=False)
        assert refused.returncode == EXIT_REFUSED
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert (site / "soda.db-wal").exists()
    subprocess.run([*command, "--restore", str(backup)], check=True)
    assert keys(site / "soda.db") == ["kept"]
    assert subprocess.run([*command, "--once"], check=False).returncode == EXIT_ERROR  # no Slurm here
    assert keys(site / "soda.db") == ["kept"]

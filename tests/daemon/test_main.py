"""The command line: what it refuses, what it says, how it ends."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_soda.daemon.cpu_fit.multi_node_search import MultiNodeSearches, search_rules
from slurm_soda.daemon.cycle.epoch import HostLock
from slurm_soda.daemon.cycle.release_stamp import is_release_stamped, stamp_release
from slurm_soda.daemon.logs import LOGGER
from slurm_soda.daemon.main import EXIT_STORE_UNUSABLE, main
from slurm_soda.daemon.process import use_settings
from slurm_soda.daemon.settings.config_file import load_settings
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon


@pytest.fixture
def site(fresh_store: Path) -> Path:
    """A state directory with a configuration, on a machine without Slurm."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (fresh_store / "soda.toml").write_text(
        f'state_dir = "{fresh_store}"\nwake_path = "{fresh_store}/wake"\n'
        f'[store]\nurl = "sqlite:///{fresh_store}/soda.db"\n[api]\nhost = "127.0.0.1"\nport = {port}\n'
        "[cycle]\ninterval_s = 0.5\nretry_s = 0.2\n[slurm]\naccounting = false\n"
    )
    return fresh_store


def command(site: Path) -> list[str]:
    return [sys.executable, "-m", "slurm_soda.daemon.main", "--config", str(site / "soda.toml")]


@pytest.fixture
def sodad(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str]]]:
    """In this process, which takes a tenth of the time: gives the exit status and what it said."""
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "propagate", LOGGER.propagate)
    level = LOGGER.level

    def sodad(*arguments: str) -> tuple[int, str]:
        return main(["--config", str(site / "soda.toml"), *arguments]), capsys.readouterr().err

    yield sodad
    LOGGER.setLevel(level)


@pytest.fixture
def running(site: Path) -> Iterator[subprocess.Popen[str]]:
    """A daemon that has told systemd that it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(site / "notify"))
        systemd.settimeout(30)
        environment = {**os.environ, "NOTIFY_SOCKET": str(site / "notify")}
        process = subprocess.Popen(command(site), stderr=subprocess.PIPE, text=True, env=environment)
        assert systemd.recv(4096) == b"READY=1"
        while b"STATUS=" not in (told := systemd.recv(4096)):
            assert told == b"WATCHDOG=1"
        yield process
        process.kill()
        process.wait()


def test_a_wrong_key_stops_it_at_start_with_one_line(site: Path) -> None:
    (site / "soda.toml").write_text("[cycle]\nevery_s = 1\n")
    done = subprocess.run(command(site), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cycle.every_s: no such key" in done.stderr


def test_a_policy_that_does_not_exist_stops_it_at_start(site: Path, sodad: Callable[..., tuple[int, str]]) -> None:
    with (site / "soda.toml").open("a") as file:
        file.write('[policy]\nname = "best"\n')
    status, stderr = sodad()
    assert status == 1
    assert stderr.count("\n") == 1
    assert "there is no policy 'best'" in stderr


def test_without_slurm_a_single_cycle_fails_and_says_why(sodad: Callable[..., tuple[int, str]]) -> None:
    status, stderr = sodad("--once")
    assert status == 1
    assert "no-action" in stderr


def test_a_second_sodad_refuses_with_one_line(site: Path, sodad: Callable[..., tuple[int, str]]) -> None:
    with HostLock(site):
        status, stderr = sodad()
    assert status == 3
    assert stderr.count("\n") == 1
    assert "this one refuses to act" in stderr


def test_sighup_with_a_mistake_keeps_the_old_configuration_and_sigterm_ends_it_in_good_order(
    site: Path, running: subprocess.Popen[str]
) -> None:
    (site / "soda.toml").write_text("mode = 1\n")
    running.send_signal(signal.SIGHUP)
    assert running.stderr is not None
    line = next(line for line in running.stderr if "not-reloaded" in line)
    assert "mode = 1" in line
    assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    _, stderr = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "stopped epoch=1" in stderr


def test_sighup_names_what_holds_only_after_a_restart(site: Path, running: subprocess.Popen[str]) -> None:
    file = site / "soda.toml"
    file.write_text(f"{file.read_text()}read_timeout_s = 7\n[scope]\nusers = ['alice']\n")
    running.send_signal(signal.SIGHUP)
    assert running.stderr is not None
    line = next(line for line in running.stderr if "restart-needed" in line or "reloaded" in line)
    assert line.rstrip().endswith("keys=slurm.read_timeout_s")


def test_a_disk_that_takes_nothing_more_gives_one_line_a_failure(site: Path, running: subprocess.Popen[str]) -> None:
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (1, 1))
    assert running.stderr is not None
    said = (line for line in running.stderr if "breaker-open" not in line)
    first = next(line for line in said if "disk I/O error" in line)
    for line in (first, next(said), next(said)):
        assert "no-action" in line
        assert f"disk I/O error on the disk of {site}" in line
        assert "MiB free" in line
        assert "sqlalche.me" not in line
    running.send_signal(signal.SIGTERM)
    _, stderr = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "Traceback" not in stderr


def remove_store(site: Path) -> None:
    for file in site.glob("soda.db*"):
        file.unlink()


def test_a_store_that_is_removed_under_it_stops_no_sodad(site: Path) -> None:
    """It ends its cycles without action until somebody has put the backup back: a restart would forget what was set."""
    config = (site / "soda.toml").read_text()
    short = config.replace("retry_s = 0.2\n", "retry_s = 2\nlease_s = 5\n").replace(
        "[slurm]\n", "[slurm]\nread_timeout_s = 2\n"
    )
    (site / "soda.toml").write_text(short)
    process = subprocess.Popen(command(site), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        next(line for line in process.stderr if "no-action" in line)
        remove_store(site)
        said = (line for line in process.stderr if "no-action" in line and "was removed or replaced" in line)
        for _ in range(2):  # longer than it goes without a heartbeat
            assert "--new-store" in next(said)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
    assert list(site.glob("soda.db*")) == []


@pytest.mark.parametrize("lost", ["removed", "emptied"])
def test_a_start_without_the_store_that_was_makes_no_empty_one(
    site: Path, sodad: Callable[..., tuple[int, str]], lost: str
) -> None:
    assert sodad("--once")[0] == 1  # no Slurm here
    remove_store(site)
    if lost == "emptied":
        (site / "soda.db").touch()
    status, stderr = sodad()
    assert status == EXIT_STORE_UNUSABLE, "systemd does not start it again"
    assert stderr.count("\n") == 1
    for part in ("soda.db", "sodad has had a store here", "/sodad --restore FILE;", "sodad --new-store"):
        assert part in stderr
    assert (site / "soda.db").exists() == (lost == "emptied")
    if lost == "emptied":
        with sqlite3.connect(site / "soda.db") as connection:
            assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
    status, stderr = sodad("--new-store")
    assert (status, stderr) == (0, f"sodad: store sqlite:///{site}/soda.db is ready\n")
    assert sodad("--once")[0] == 1


@pytest.mark.parametrize("mark", ["store", "store {site}/soda.db"])
def test_another_store_than_the_one_that_was_is_no_loss(
    site: Path, sodad: Callable[..., tuple[int, str]], mark: str
) -> None:
    (site / "sodad.lock").write_text(f"1\n{mark.format(site=site)}\n")
    remove_store(site)
    assert sodad("--once")[0] == EXIT_STORE_UNUSABLE
    config = (site / "soda.toml").read_text()
    (site / "soda.toml").write_text(config.replace("soda.db", "other.db"))
    assert "no-action" in sodad("--once")[1]
    assert (site / "sodad.lock").read_text().endswith(f"\nstore {site}/other.db\n")


def test_a_sodad_that_starts_forgets_that_lifts_were_taken_back(
    site: Path, sodad: Callable[..., tuple[int, str]]
) -> None:
    stamp_release(site)
    sodad("--once")
    assert not is_release_stamped(site)


def test_a_first_start_that_could_not_make_its_store_is_no_loss(
    site: Path, sodad: Callable[..., tuple[int, str]]
) -> None:
    remove_store(site)
    (site / "soda.db").mkdir()
    status, stderr = sodad("--once")
    assert status == EXIT_STORE_UNUSABLE
    assert "soda.db is a directory; move it away, or correct store.url" in stderr
    (site / "soda.db").rmdir()
    assert "no-action" in sodad("--once")[1]
    assert (site / "soda.db").stat().st_size > 0


@pytest.mark.parametrize(
    ("spoil", "found", "remedy"),
    [
        ("CREATE TABLE job (x); CREATE TABLE mail (y)", "is a database of another program (its tables: job, mail)", "url"),
        ("CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('ab12'); CREATE TABLE t (x)",
         "is a database of another program (its tables: alembic_version, t)", "point store.url to a file of"),
        (None, "is at version '0009', newer than", "upgrade slurm-soda"),
    ],
    ids=["other tables", "other alembic", "newer"],
)  # fmt: skip
def test_a_store_that_no_restart_makes_ours(
    site: Path, sodad: Callable[..., tuple[int, str]], spoil: str | None, found: str, remedy: str
) -> None:
    if spoil is not None:
        remove_store(site)
    with sqlite3.connect(site / "soda.db") as connection:
        connection.executescript(spoil or "UPDATE alembic_version SET version_num = '0009'")
    status, stderr = sodad()
    assert status == EXIT_STORE_UNUSABLE, "systemd does not start it again"
    assert stderr.count("\n") == 1
    assert found in stderr
    assert remedy in stderr
    assert "rights" not in stderr


def test_a_damaged_store_stops_it_for_good_and_says_what_to_do(
    site: Path, sodad: Callable[..., tuple[int, str]]
) -> None:
    raw = bytearray((site / "soda.db").read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    raw[100:4096] = b"\xff" * 3996
    (site / "soda.db").write_bytes(raw)
    status, stderr = sodad()
    assert status == EXIT_STORE_UNUSABLE, "systemd does not start it again"
    assert stderr.count("\n") == 1
    for part in (
        "malformed",
        "stop sodad",
        "/sodad --restore FILE` with a backup",
        f"move {site}/soda.db* aside",
        "lost",
    ):
        assert part in stderr


OPEN_AS_ANOTHER_USER = """
import os, sys
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.store_errors import StoreError
os.setgid(12345)
os.setuid(12345)
try:
    open_store(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_of_the_wrong_user_is_given_back(fresh_store: Path) -> None:
    """sodad is SlurmUser, who owns the directory; root made the file anew."""
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is for one user only
        store = Path(folder) / "soda.db"
        shutil.copy(fresh_store / "soda.db", store)
        store.chmod(0o600)
        os.chown(folder, 12345, 12345)
        argv = [sys.executable, "-c", OPEN_AS_ANOTHER_USER, f"sqlite:///{store}"]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"as root: chown 12345: {store}*" in said
    assert "run this as root" not in said


def test_a_reload_reaches_the_searches_on_several_nodes(
    site: Path, slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    searches = MultiNodeSearches(search_rules(daemon().cycles.settings.cpu_fit))
    with (site / "soda.toml").open("a") as file:
        file.write("[cpu_fit]\ntolerance_ratio = 0.123\n")
    use_settings(load_settings(site / "soda.toml"), daemon().cycles, searches)
    assert searches.rules.tolerance_ratio == 0.123

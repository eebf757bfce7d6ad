"""The command line: what it refuses, what it says, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import HostLock
from slurm_soda.daemon.logs import LOGGER
from slurm_soda.daemon.main import main


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
        assert b"STATUS=" in systemd.recv(4096)
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

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, LocalCommandRunner
from slurm_soda.slurm_ext.errors import SlurmCommandError

PATH = {"PATH": "/usr/bin:/bin"}


def test_it_hands_over_bytes_and_brings_bytes_back() -> None:
    said = LocalCommandRunner()(["cat"], stdin=b"\xff\x00\n", timeout_s=10, env=PATH)
    assert (said.status, said.stdout, said.stderr) == (0, b"\xff\x00\n", b"")


def test_the_environment_is_exactly_the_one_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%A")
    said = LocalCommandRunner()(["/usr/bin/env"], stdin=b"", timeout_s=10, env=SLURM_ENVIRONMENT)
    assert dict(line.split("=", 1) for line in said.stdout.decode().splitlines()) == dict(SLURM_ENVIRONMENT)


def test_arguments_reach_the_program_untouched() -> None:
    argv = ["printf", "%s|", "a b", "$(id)", "'q'", '"', "*"]
    assert LocalCommandRunner()(argv, stdin=b"", timeout_s=10, env=PATH).stdout == b"""a b|$(id)|'q'|"|*|"""


def test_at_the_time_limit_the_command_and_its_children_are_gone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    line = f"echo early; sleep 60 & echo $! > {pid_file}; wait"
    said = LocalCommandRunner()(["sh", "-c", line], stdin=b"", timeout_s=0.5, env=PATH)
    assert (said.status, said.stdout) == (None, b"early\n")
    child = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_is_not_there_is_a_status_not_an_exception() -> None:
    said = LocalCommandRunner()(["soda-no-such-program"], stdin=b"", timeout_s=10, env=PATH)
    assert said.status == 127
    assert b"soda-no-such-program" in said.stderr


def test_a_command_that_does_not_read_its_input_is_no_error() -> None:
    assert LocalCommandRunner()(["true"], stdin=b"x" * 1_000_000, timeout_s=10, env=PATH).status == 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("exit 3", "exited with status 3; do this"),
        ("echo no such job >&2; exit 1", "exited with status 1: no such job; do this"),
        ("sleep 9", "did not answer in time; do this"),
    ],
)
def test_a_failure_says_what_was_run_and_what_to_do(line: str, text: str) -> None:
    said = LocalCommandRunner()(["sh", "-c", line], stdin=b"", timeout_s=0.3, env=PATH)
    with pytest.raises(SlurmCommandError) as caught:
        said.check("do this")
    assert str(caught.value) == f"sh -c {line} {text}"


def test_a_killed_command_has_a_negative_status() -> None:
    said = LocalCommandRunner()(["sh", "-c", "kill -9 $$"], stdin=b"", timeout_s=10, env=PATH)
    assert said.status == -9


MUNGE_IS_DOWN = (
    'squeue: error: If munged is up, restart with --num-threads=10\nsqueue: error: Munge encode failed: Failed to access "'
    '/run/munge/munge.socket.2": No such file or directory\nsqueue: error: slurm_send_node_msg: auth_g_create: RPC has '
    "authentication error\nslurm_load_jobs error: Protocol authentication error\n"
)


@pytest.mark.parametrize("status", [1, None])
def test_a_command_that_munge_lets_down_names_munge(status: int | None) -> None:
    error = str(SlurmCommandError(("squeue",), status, MUNGE_IS_DOWN, "check that slurmctld answers (scontrol ping)"))
    assert "systemctl status munge" in error
    assert "scontrol ping" not in error
    other = str(SlurmCommandError(("squeue",), status, "Unable to contact slurm controller", "scontrol ping"))
    assert "munge" not in other


def test_an_error_shows_the_beginning_of_long_complaints() -> None:
    short, long = (SlurmCommandError(("sacct",), 1, "x" * count, "do this") for count in (2000, 10_000_000))
    assert str(short) == f"sacct exited with status 1: {'x' * 2000}; do this"
    assert str(long) == f"sacct exited with status 1: {'x' * 2000} (and 9998000 characters more); do this"
    assert len(long.stderr) == 10_000_000


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_command_that_writes_too_much_is_stopped_as_soon_as_it_has(stream: str) -> None:
    before_s = time.monotonic()
    argv = ["sh", "-c", f"(yes | head -c 100000; sleep 60) >&{stream}"]
    said = LocalCommandRunner()(argv, stdin=b"", timeout_s=30, env=PATH, most_bytes=1000)
    assert said.cut
    assert len(said.stdout) + len(said.stderr) == 1000
    assert time.monotonic() - before_s < 10


@pytest.mark.parametrize("bytes_written", [0, 999, 1000])
def test_a_command_that_writes_as_much_as_it_may_is_as_any_other(bytes_written: int) -> None:
    line = f"yes | head -c {bytes_written}; echo no >&2; exit 3"
    said = LocalCommandRunner()(["sh", "-c", line], stdin=b"", timeout_s=30, env=PATH, most_bytes=1000)
    assert (len(said.stdout), said.stderr, said.status, said.cut) == (bytes_written, b"no\n", 3, False)


@pytest.mark.parametrize("most_bytes", [None, 1000])
@pytest.mark.parametrize("line", ["echo a; echo b >&2; sleep 60", "echo a; echo b >&2; exec sleep 60 >&- 2>&-"])
def test_at_its_time_limit_a_command_has_said_what_it_wrote_so_far(line: str, most_bytes: int | None) -> None:
    argv = ["sh", "-c", line]
    said = LocalCommandRunner()(argv, stdin=b"", timeout_s=0.5, env=PATH, most_bytes=most_bytes)
    assert (said.status, said.stdout, said.stderr, said.cut) == (None, b"a\n", b"b\n", False)


def test_nobody_waits_for_what_outlives_a_bounded_command(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    line = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 60' & sleep 60"
    said = LocalCommandRunner()(["sh", "-c", line], stdin=b"", timeout_s=0.5, env=PATH, most_bytes=1000)
    assert said.status is None
    child = int(pid_file.read_text())
    assert _lives(child)
    os.kill(child, signal.SIGKILL)

"""A command that changes Slurm ends with the daemon that began it, whether that is killed or paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.command_runner import LocalCommandRunner

ENV = {"PATH": "/usr/bin:/bin"}

CALLER = """
import sys
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
script = f"echo $$ > {sys.argv[1]}; exec sleep 30"
LocalCommandRunner(bound=True)(("sh", "-c", script), stdin=b"", timeout_s=float(sys.argv[2]), env={"PATH": "/usr/bin:/bin"})
"""

WITHOUT_CAPSET = """
import ctypes, struct, sys
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
number = int(sys.argv[1])
load, unequal, refuse, allow = (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)
rules = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in (load, unequal, refuse, allow)))
program = ctypes.create_string_buffer(struct.pack("HP", 4, ctypes.addressof(rules)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
LocalCommandRunner(bound=True)(("true",), stdin=b"", timeout_s=9.0, env={"PATH": "/usr/bin:/bin"}).check("do this")
"""
"""PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP: a system call fails with EPERM, as under systemd's SystemCallFilter=~capset."""
CAPSET = {"x86_64": 126, "aarch64": 91}


def run(*argv: str, timeout_s: float = 20.0) -> int | None:
    return LocalCommandRunner(bound=True)(argv, stdin=b"", timeout_s=timeout_s, env=ENV).status


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Callable[[float], tuple[subprocess.Popen[bytes], int]]]:
    """Start a caller whose command runs; both."""
    callers: list[subprocess.Popen[bytes]] = []

    def start(timeout_s: float) -> tuple[subprocess.Popen[bytes], int]:
        callers.append(subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path / "pid"), str(timeout_s)]))
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()):
            time.sleep(0.02)
        return callers[0], int((tmp_path / "pid").read_text())

    yield start
    for caller in callers:
        caller.kill()
        caller.wait()


def wait_gone(pid: int, within_s: float = 10.0) -> bool:
    until_s = time.monotonic() + within_s
    while lives(pid) and time.monotonic() < until_s:
        time.sleep(0.02)
    return not lives(pid)


def test_a_command_dies_with_its_caller(call: Callable[[float], tuple[subprocess.Popen[bytes], int]]) -> None:
    caller, command = call(20.0)
    caller.kill()
    assert wait_gone(command)


def test_a_command_of_a_paused_caller_ends_at_its_time_limit(
    call: Callable[[float], tuple[subprocess.Popen[bytes], int]],
) -> None:
    caller, command = call(1.0)
    caller.send_signal(signal.SIGSTOP)
    assert wait_gone(command)


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (("sh", "-c", "exit 3"), 3),
        (("no-such-program",), 127),
        ((os.devnull,), 126),
        (("sh", "-c", "kill -KILL $$"), -9),
        (("sh", "-c", "kill -TERM $$"), -15),
    ],
)
def test_its_status_is_the_commands(argv: tuple[str, ...], status: int) -> None:
    assert run(*argv) == status


def test_it_is_stopped_at_its_time_limit() -> None:
    assert run("sleep", "30", timeout_s=0.2) is None


@pytest.mark.skipif(os.uname().machine not in CAPSET, reason="the number of capset is not known here")
def test_what_setpriv_may_not_do_is_told_in_its_words() -> None:
    """It ends with 127, as a shell does where the command is not installed."""
    number = CAPSET[os.uname().machine]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CAPSET, str(number)], capture_output=True, text=True, check=False
    )
    error = done.stderr.strip().splitlines()[-1]
    assert "true exited with status 126: setpriv: " in error, done.stderr
    assert error.endswith("; do this")

"""Prolog and epilog as slurmd runs them: status 0 always, in time, and one record each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.job_events.hook_variables import event_line_from_variables
from tests.prolog.conftest import EPILOG_ENV, PROLOG_ENV, Installed, make_installed

HOOKS = ("prolog", "epilog")


def test_without_an_agent_the_hooks_keep_the_records_themselves(installed: Installed) -> None:
    assert installed.run("prolog", PROLOG_ENV).returncode == 0
    assert installed.run("epilog", EPILOG_ENV).returncode == 0
    records = installed.records()
    assert set(records) == {"10.1795214838.open", "10.1795214838.close"}
    opened, closed = records["10.1795214838.open"], records["10.1795214838.close"]
    assert {key: opened[key] for key in ("kind", "job_id", "restart", "node", "uid", "user", "partition", "gpus")} == {
        "kind": "open", "job_id": 10, "restart": 0, "node": "n1", "uid": 1000, "user": "alice", "partition": "main",
        "gpus": [0, 1],
    }  # fmt: skip
    assert opened["env"] == {"SPANK_SODA_MODEL": "resnet50", "SPANK_SODA_BATCH_SIZE": "64"}
    assert abs(opened["at_s"] - time.time()) < 60
    assert "is away" in opened["fault"]
    assert (closed["job_id"], closed["exit_code"]) == (10, "3:0")
    assert installed.spool.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_link_to_a_hook_does_what_the_hook_does(installed: Installed, tmp_path: Path, hook: str, steps: int) -> None:
    """A site's prolog.d holds links; one may lead to another, and be relative."""
    agent = Listener(installed.socket, b"ok\n")
    folder = tmp_path / "prolog.d"
    folder.mkdir()
    link = folder / "50-soda"
    link.symlink_to(installed.prefix / "libexec" / hook)
    for step in range(1, steps):
        link = folder / f"6{step}-soda"
        link.symlink_to("50-soda")
    for environ in (EPILOG_ENV, {**EPILOG_ENV, "PATH": str(folder)}):
        (folder / "readlink").write_text("#!/bin/sh\necho /evil\n")
        (folder / "readlink").chmod(0o755)
        argv = [str(link), str(installed.socket), str(installed.spool)]
        done = subprocess.run(argv, env=environ, cwd="/", capture_output=True, timeout=30, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert installed.records() == {}
    assert len(agent.heard) == 2


class Listener:
    """An agent that answers every connection with the same bytes, or never."""

    def __init__(self, path: Path, answer: bytes | None) -> None:
        self.heard: list[bytes] = []
        self._answer = answer
        self._kept: list[socket.socket] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            self._kept.append(connection)
            if self._answer is not None:
                self.heard.append(connection.makefile("rb").readline())
                connection.sendall(self._answer)


@pytest.mark.parametrize("hook", HOOKS)
def test_an_agent_that_takes_the_event_leaves_nothing_to_spool(installed: Installed, hook: str) -> None:
    agent = Listener(installed.socket, b"ok\n")
    done = installed.run(hook, EPILOG_ENV)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert installed.records() == {}
    assert len(agent.heard) == 1
    event = json.loads(event_line_from_variables(agent.heard[0]))
    assert (event["kind"], event["job_id"]) == ("open" if hook == "prolog" else "close", 10)


@pytest.mark.sample(3)
@pytest.mark.parametrize("answer", [None, b"no spool is full\n", b"", b"o", b"x" * 4096, b"\xff\n"])
@pytest.mark.parametrize("hook", HOOKS)
def test_an_agent_that_hangs_or_refuses_counts_as_away(installed: Installed, hook: str, answer: bytes | None) -> None:
    Listener(installed.socket, answer)
    assert installed.run(hook, EPILOG_ENV).returncode == 0
    assert len(installed.records()) == 1


HOSTILE: dict[str, dict[Any, Any]] = {
    "empty": {},
    "no job id": {**PROLOG_ENV, "SLURM_JOB_ID": ""},
    "job id is a path": {**PROLOG_ENV, "SLURM_JOB_ID": "../../etc/passwd"},
    "job id is a command": {**PROLOG_ENV, "SLURM_JOB_ID": "$(touch /evil)"},
    "job id is huge": {**PROLOG_ENV, "SLURM_JOB_ID": "9" * 4000},
}
BEARABLE: dict[str, dict[Any, Any]] = {
    "comment": {**PROLOG_ENV, "SLURM_JOB_COMMENT": "'\"`$(reboot)`|;&\n\r\x1b[2J" * 50},
    "long values": dict.fromkeys(PROLOG_ENV, "A" * 30_000) | {"SLURM_JOB_ID": "10", "SLURM_JOB_START_TIME": "1795214838"},
    "many hints": {**PROLOG_ENV, **{f"SPANK_SODA_X{i}": "v" * 3000 for i in range(300)}},
    "hostile hints": {**PROLOG_ENV, "SPANK_SODA_BATCH_SIZE": "64; rm -rf /", "SPANK_SODA_CATEGORY": "\n{}\x00"[:-1]},
    "python": {**PROLOG_ENV, "PYTHONPATH": "/evil", "PYTHONSTARTUP": "/evil", "PYTHONHOME": "/evil"},
    "shell": {**PROLOG_ENV, "IFS": "/", "ENV": "/evil", "BASH_ENV": "/evil", "PS4": "$(reboot)", "CDPATH": "/evil"},
    "bytes": {k.encode(): v.encode() for k, v in PROLOG_ENV.items()} | {b"SLURM_JOB_USER": b"\xff\xfe"},
    "newlines in names": {**PROLOG_ENV, "SLURMD_NODENAME": "n1\nn2", "SLURM_JOB_PARTITION": "a\tb"},
}  # fmt: skip


@pytest.mark.sample(9)
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("case", [*HOSTILE, *BEARABLE])
def test_a_hostile_environment_costs_at_most_the_record(installed: Installed, hook: str, case: str) -> None:
    done = installed.run(hook, (HOSTILE | BEARABLE)[case])
    assert done.returncode == 0
    assert done.stdout == b""
    assert done.stderr.count(b"\n") <= 1
    assert len(installed.records()) == (1 if case in BEARABLE else 0)
    for record in installed.records().values():
        assert record["job_id"] == 10
        assert len(record.get("env", {})) <= 16


@pytest.mark.parametrize("hook", HOOKS)
def test_a_spool_that_is_a_trap_is_not_walked_into(installed: Installed, hook: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    installed.spool.symlink_to(target)
    done = installed.run(hook, PROLOG_ENV)
    assert done.returncode == 0
    assert b"no directory that can be opened" in done.stderr
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("damage", ["no python", "python is no program", "no package"])
def test_a_broken_installation_still_leaves_with_status_0(installed: Installed, hook: str, damage: str) -> None:
    python = installed.environment / "bin" / "python"
    if damage == "no package":
        next(installed.environment.glob("lib/python*/site-packages/slurm_soda")).unlink()
    else:
        python.unlink()
    if damage == "python is no program":
        python.write_text("nonsense")
    assert installed.run(hook, PROLOG_ENV).returncode == 0


@pytest.mark.parametrize("hook", HOOKS)
def test_a_python_that_hangs_before_it_reads_a_line_is_stopped_with_status_0(tmp_path: Path, hook: str) -> None:
    """The limit of the recording itself begins after Python's imports, which a slow disk makes last."""
    installed = make_installed(tmp_path)
    python = installed.environment / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\ntrap '' TERM INT ALRM\nsleep 30 & wait\n")  # a child holds slurmd's pipe too
    python.chmod(0o755)
    began_s = time.monotonic()
    done = installed.run(hook, PROLOG_ENV)
    assert time.monotonic() - began_s < 3.0
    assert done.returncode == 0
    assert f"slurm-soda {hook}: stopped after 2.2 s".encode() in done.stderr


def test_what_hangs_is_stopped_with_status_0() -> None:
    program = (
        "import time\nfrom slurm_soda.wire.failsafe import run_failsafe\n"
        "def hang():\n    while True:\n        time.sleep(1)\n"
        "run_failsafe(hang, 'prolog', 0.2)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0
    assert b"prolog: stopped after 0.2 s" in done.stderr


@pytest.mark.parametrize(
    "error", ["SystemExit(3)", "KeyboardInterrupt()", "MemoryError()", "ValueError('a\\nb')", "RecursionError()"]
)
def test_whatever_is_raised_ends_with_status_0(error: str) -> None:
    program = (
        "from slurm_soda.wire.failsafe import run_failsafe\n"
        f"def step():\n    raise {error}\nrun_failsafe(step, 'prolog')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0
    assert done.stderr.count(b"\n") == 1


def test_a_blocked_alarm_signal_does_not_disarm_the_time_limit() -> None:
    program = (
        "import time\nfrom slurm_soda.wire.failsafe import run_failsafe\n"
        "def hang():\n    time.sleep(20)\n    return ''\n"
        "run_failsafe(hang, 'epilog', 0.2)\n"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=15, check=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (done.returncode, b"stopped" in done.stderr) == (0, True)


def test_epilogctld_wakes_and_never_fails(installed: Installed, tmp_path: Path) -> None:
    hook = str(installed.prefix / "libexec" / "epilogctld")
    wake = tmp_path / "wake"
    wake.write_text("")
    os.utime(wake, (1, 1))
    assert subprocess.run([hook, str(tmp_path)], env={}, check=False).returncode == 0
    assert wake.stat().st_mtime > 1
    missing = subprocess.run([hook, str(tmp_path / "none")], env={}, capture_output=True, check=False)
    assert (missing.returncode, missing.stderr) == (0, b"")

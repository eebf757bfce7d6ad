"""The layout of an installed node, made under a test's own directory from the very files that a site installs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.job_events.event_socket import EventSocket
from slurm_soda.agent.job_events.hook_variables import EVENT_MAKERS
from tests.builds import made_once

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Installed:
    """``prefix/libexec``, the environment that it uses with the package in site-packages; socket and spool beside it."""

    prefix: Path
    socket: Path
    spool: Path

    @property
    def environment(self) -> Path:
        """Where Python is."""
        return self.prefix / "lib" / "slurm-soda" / "current"

    @property
    def program(self) -> Path:
        """Where soda-deliver-event is, if it is installed."""
        return self.prefix / "libexec" / "soda-deliver-event"

    def run(self, hook: str, environ: dict[str, str] | dict[bytes, bytes]) -> subprocess.CompletedProcess[bytes]:
        """Run a hook as slurmd does: no arguments but our places, no PATH, nothing in the environment but ``environ``."""
        argv = [str(self.prefix / "libexec" / hook), str(self.socket), str(self.spool)]
        return subprocess.run(argv, env=environ, cwd="/", capture_output=True, timeout=30, check=False)

    def records(self) -> dict[str, dict[str, Any]]:
        """What is in the spool, by name."""
        if not self.spool.is_dir():
            return {}
        return {path.name: json.loads(path.read_bytes()) for path in self.spool.iterdir()}


@pytest.fixture(scope="session")
def deliver_event_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """soda-deliver-event, but it waits for the agent as long as a busy machine may take."""
    return _compiled(tmp_path_factory, "patient", "-DTIMEOUT_MS=20000")


@pytest.fixture(scope="session")
def impatient_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """soda-deliver-event with the time limit that sites have."""
    return _compiled(tmp_path_factory, "impatient")


def _compiled(tmp_path_factory: pytest.TempPathFactory, name: str, *more: str) -> Path:
    """It stops at whatever the sanitizers find."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("soda-deliver-event is C: install gcc and make")
    flags = " ".join(("-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all", *more))

    def make(build: Path) -> None:
        argv = ["make", "-s", "-C", str(CHECKOUT / "wire"), f"BUILD={build}", f"CFLAGS={flags}", "HARDENING="]
        subprocess.run(argv, check=True, timeout=120)

    return made_once(tmp_path_factory, f"deliver-event-{name}", make) / "soda-deliver-event"


class Desk:
    """The agent's own socket server in a thread. ``lines``: what it was given; it answers ``refusal``, or by ``answer``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self.refusal = ""
        self.answer: Callable[[bytes], str] | None = None
        self._loop = asyncio.new_event_loop()
        self._intake = EventSocket(str(path), self._take, lambda: None)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self._intake.start())

    def _take(self, line: bytes) -> str:
        self.lines.append(line)
        return self.answer(line) if self.answer else self.refusal

    def _do(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    def stop(self) -> None:
        self._do(self._intake.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def heard(self) -> bytes | None:
        """The one line since the last call, if there was one."""
        lines, self.lines = self.lines, []
        assert len(lines) <= 1
        return lines[0] if lines else None


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk") / "agent.sock")
    yield desk
    desk.stop()


@pytest.fixture(params=["with the program", "Python alone"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Installed:
    """As a site has it, and as one without soda-deliver-event."""
    installed = make_installed(tmp_path)
    if request.param == "with the program":
        shutil.copy(request.getfixturevalue("impatient_program"), installed.program)
    return installed


def make_installed(tmp_path: Path) -> Installed:
    """Hooks and package, without soda-deliver-event."""
    made = Installed(tmp_path / "opt", tmp_path / "agent.sock", tmp_path / "spool")
    packages = made.environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for folder in (made.environment / "bin", made.prefix / "libexec", packages):
        folder.mkdir(parents=True)
    (made.environment / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (packages / "slurm_soda").symlink_to(CHECKOUT / "src" / "slurm_soda")
    for hook in ("prolog/prolog", "epilog/epilog", "epilog/epilogctld"):
        shutil.copy(CHECKOUT / hook, made.prefix / "libexec")
    return made


# What slurmd 24.11 gives to the prolog of a two-GPU job, but for paths.
PROLOG_ENV = {
    "SLURM_JOB_USER": "alice", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": "0,1", "SLURMD_NODENAME": "n1",
    "SLURM_JOB_START_TIME": "1795214838", "SLURM_CLUSTER_NAME": "g", "SLURM_JOB_CPUS_PER_NODE": "2",
    "SLURM_JOB_PARTITION": "main", "SLURM_JOB_COMMENT": "x;y\nz", "CUDA_VISIBLE_DEVICES": "0,1",
    "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "10", "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SPANK_SODA_MODEL": "resnet50", "SPANK_SODA_BATCH_SIZE": "64",
}  # fmt: skip

# Its epilog after a requeue: the restart count is the next run's already.
EPILOG_ENV = {
    **PROLOG_ENV,
    "SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
    "SLURM_JOB_RESTART_COUNT": "1",
    "SLURM_JOB_EXIT_CODE": "768",
    "SLURM_JOB_EXIT_CODE2": "3:0",
}


def python_s_event(kind: str, environ: Mapping[str, str], at_s: float) -> dict[str, object]:
    """What the Python hook makes of the same environment."""
    return EVENT_MAKERS[kind](environ, at_s, os.uname().nodename)

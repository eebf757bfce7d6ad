"""An emulated control daemon, its clients, and what is asked of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .conftest import Hardware

FULL = {"SLURM_CPUS_ON_NODE": "28"}  # cores enough for every model


def wait_until(ready: Callable[[], object], limit_s: float = 20) -> None:
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


@dataclass
class Daemon:
    """A control daemon that runs, or ran."""

    hardware: Hardware
    pipe: Path
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}

    def run(self, *options: str, commands: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.hardware.built / "nvidia-cuda-mps-control"), *options],
            env=self.hardware.env(**self.environment, **env), input=commands, capture_output=True, text=True, check=False,
            timeout=20,
        )  # fmt: skip

    def ask(self, command: str) -> str:
        return self.run(commands=command + "\n").stdout

    def servers(self) -> list[int]:
        return [int(pid) for pid in self.ask("get_server_list").split()]

    @property
    def pid(self) -> int:
        return int((self.pipe / "nvidia-cuda-mps-control.pid").read_text())

    def client(self, model: str, gpus: str, *options: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.hardware.train, "--cpu-load", "0", "--model", model, "--duration-s", "1e6", *options],
            env=self.hardware.env(CUDA_VISIBLE_DEVICES=gpus, **FULL, **self.environment, **env),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@contextmanager
def control_daemon(hardware: Hardware, at: Path, *options: str, **env: str) -> Iterator[Daemon]:
    daemon = Daemon(hardware, at / "pipe", at / "log")
    at.mkdir(exist_ok=True)
    started = daemon.run("-d", *options, **env)
    assert (started.returncode, started.stderr) == (0, "")
    number = daemon.pipe / "nvidia-cuda-mps-control.pid"
    wait_until(lambda: number.exists() and number.read_text())  # it is made, then written
    pid = daemon.pid
    try:
        yield daemon
    finally:
        daemon.run(commands="quit -t 0\n")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def used(hardware: Hardware, gpu: int) -> int:
    """How many processes have work on a GPU."""
    lines = list[str]()
    for path in hardware.state.iterdir():
        with suppress(FileNotFoundError):  # its process has just ended
            lines += path.read_text().splitlines()[1:] if path.name.isdigit() else ()
    return sum(line.split()[0] == str(gpu) and line.split()[3] != "0" for line in lines)


def end(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.communicate()

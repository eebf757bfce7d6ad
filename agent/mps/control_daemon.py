"""One control daemon of NVIDIA MPS that the hooks have started, and what it and its log say.

``/run/slurm-soda-node/mps/WHO`` is root's, and so are the files in it: the daemon's process id and start time, and a file
for each job. What lies in ``pipe`` and ``log`` is the daemon's user's own, who may put there what he likes: no link is
followed, nothing but a plain file is read, and the daemon is asked by a process of that user.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from slurm_soda.agent.cpusets.cpu_list import parse_cpu_list
from slurm_soda.wire.mps import MpsJob

CONTROLS = ("/usr/bin/nvidia-cuda-mps-control", "/usr/local/bin/nvidia-cuda-mps-control")
ANSWER_S = 0.5
"""For all questions to one daemon in a turn."""
MAX_SERVERS = 8
"""Asked about: a daemon has one, and a second while the first one ends. Its user may give it other children."""
MAX_ANSWER_BYTES = 4096
MAX_LOG_BYTES = 65_536
"""Read of a log at a time; of more, the newest."""
_FATAL = re.compile(rb"fatal|\bfault\b", re.IGNORECASE)
"""NVIDIA documents the status of a server with a fault, not the wording of its log."""


class ControlDaemon:
    """The daemon of one user, or of all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = directory.name
        """A user's id, or ``all``."""
        self._log = -1
        """The log that was read, open: what it said before somebody removed it can still be read."""
        self._log_read = 0

    def jobs(self) -> tuple[MpsJob, ...]:
        """Jobs that it serves, by id."""
        found = []
        for path in self._directory.glob("job.[1-9]*"):
            try:
                gpus = parse_cpu_list(path.read_text(encoding="ascii").strip())
                found.append(MpsJob(int(path.suffix[1:]), self.name, tuple(sorted(gpus))))
            except (OSError, ValueError):
                continue  # it begins or ends just now
        return tuple(sorted(found, key=lambda job: job.job_id))

    def skip_log(self) -> None:
        """What is in the log now was there before."""
        self._read_log()

    def has_logged_fault(self) -> bool:
        """Whether the servers' log has told of one since it was read last."""
        return _FATAL.search(self._read_log()) is not None

    def faulted_servers(self) -> list[int] | None:
        """Servers that have a fault and wait for their clients to end; ``None`` where the daemon does not answer in time."""
        until_s, found = time.monotonic() + ANSWER_S, []
        for server in self._servers():
            answer = self._ask(f"get_server_status {server}", until_s - time.monotonic())
            if answer is None:
                return None
            if "FAULT" in answer.split():
                found.append(server)
        return found

    def end_servers(self, servers: Sequence[int]) -> None:
        """At once, with their clients; the next client gets a new one."""
        until_s = time.monotonic() + ANSWER_S
        for server in servers:
            self._ask(f"shutdown_server {server} -f", until_s - time.monotonic())

    def _servers(self) -> list[int]:
        try:
            text = (self._directory / "daemon").read_text(encoding="ascii").split()
            return sorted(child.pid for child in psutil.Process(int(text[0])).children())[:MAX_SERVERS]
        except (OSError, ValueError, IndexError, psutil.Error):
            return []

    def _ask(self, command: str, limit_s: float) -> str | None:
        """The answer, cut to what one can be: who answers is a process of the user, who may do with it what he likes."""
        control = next((path for path in CONTROLS if os.access(path, os.X_OK)), None)
        if control is None or limit_s <= 0:
            return None
        try:
            owner = (self._directory / "pipe").lstat()
            asker = subprocess.Popen(
                [control],
                env={
                    "CUDA_MPS_PIPE_DIRECTORY": str(self._directory / "pipe"),
                    "CUDA_MPS_LOG_DIRECTORY": str(self._directory / "log"),
                },
                user=owner.st_uid,
                group=owner.st_gid,
                extra_groups=[],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        with asker:
            try:
                return _answer(asker, f"{command}\n".encode(), limit_s)
            except (OSError, subprocess.SubprocessError):
                asker.kill()
                return None

    def close(self) -> None:
        """Read its log no more."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _read_log(self) -> bytes:
        said = self._read_rest()
        return said + self._read_rest() if self._opened_other_log() else said

    def _opened_other_log(self) -> bool:
        """Whether a log lies there that is not the one that was read."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self._directory / "log" / "server.log", flags)
        except OSError:
            return False
        found = os.fstat(file)
        same = self._log >= 0 and os.path.samestat(found, os.fstat(self._log))
        if same or not stat.S_ISREG(found.st_mode):
            os.close(file)
            return False
        self.close()
        self._log, self._log_read = file, 0
        return True

    def _read_rest(self) -> bytes:
        if self._log < 0:
            return b""
        try:
            size = os.fstat(self._log).st_size
            before = self._log_read if self._log_read <= size else 0  # it was cut, and written anew
            start = max(before, size - MAX_LOG_BYTES)
            self._log_read = size
            return os.pread(self._log, size - start, start)
        except OSError:
            return b""


def _answer(asker: subprocess.Popen[bytes], command: bytes, limit_s: float) -> str | None:
    """What a program says that ends by itself: a pipe holds the answer of an honest one.

    Raises:
        OSError: it does not listen, or a process that it left behind keeps the answer open.
        subprocess.SubprocessError: it does not end in time.
    """
    assert asker.stdin is not None
    assert asker.stdout is not None
    asker.stdin.write(command)
    asker.stdin.close()
    if asker.wait(limit_s) != 0:
        return None
    os.set_blocking(asker.stdout.fileno(), False)
    return os.read(asker.stdout.fileno(), MAX_ANSWER_BYTES).decode("utf-8", "replace")

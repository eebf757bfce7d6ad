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
from pathlib import Path

import psutil

from slurm_soda.agent.cpusets.cpu_list import parse_cpu_list
from slurm_soda.wire.mps import MpsJob

CONTROLS = ("/usr/bin/nvidia-cuda-mps-control", "/usr/local/bin/nvidia-cuda-mps-control")
ANSWER_S = 0.5
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
        """Servers that have a fault and wait for their clients to end; ``None`` where the daemon does not answer."""
        servers = self._servers()
        if not servers:
            return []
        answers = [self._ask(f"get_server_status {server}") for server in servers]
        if None in answers:
            return None
        return [server for server, answer in zip(servers, answers, strict=True) if answer and "FAULT" in answer.split()]

    def end_server(self, server: int) -> None:
        """At once, with its clients; the next client gets a new one."""
        self._ask(f"shutdown_server {server} -f")

    def _servers(self) -> list[int]:
        try:
            text = (self._directory / "daemon").read_text(encoding="ascii").split()
            return sorted(child.pid for child in psutil.Process(int(text[0])).children())
        except (OSError, ValueError, IndexError, psutil.Error):
            return []

    def _ask(self, command: str) -> str | None:
        control = next((path for path in CONTROLS if os.access(path, os.X_OK)), None)
        if control is None:
            return None
        try:
            owner = (self._directory / "pipe").lstat()
            done = subprocess.run(
                [control],
                input=f"{command}\n",
                env={
                    "CUDA_MPS_PIPE_DIRECTORY": str(self._directory / "pipe"),
                    "CUDA_MPS_LOG_DIRECTORY": str(self._directory / "log"),
                },
                user=owner.st_uid,
                group=owner.st_gid,
                extra_groups=[],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=ANSWER_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout if done.returncode == 0 else None

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

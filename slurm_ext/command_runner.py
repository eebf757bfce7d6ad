"""How a Slurm command is run. Everything above takes a :class:`CommandRunner`, so that it can also reach into a
container.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_soda.slurm_ext.errors import NOT_FOUND, SEARCH_PATH, SlurmCommandError

SLURM_ENVIRONMENT: Mapping[str, str] = {
    "PATH": SEARCH_PATH,
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": "%s",
    # Without TZ, glibc looks at /etc/localtime for every time printed: half the run time of squeue at 10 000 jobs.
    "TZ": "UTC0",
    # scontrol reads its lines through readline, which shall find neither a terminal nor a configuration.
    "TERM": "dumb",
    "INPUTRC": "/dev/null",
}
"""The whole environment of every command: nothing of the caller's can change what Slurm prints."""

CANNOT_RUN = 126


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command that ended or was stopped."""

    argv: tuple[str, ...]
    status: int | None
    """Exit status, negative for a signal; ``None``: stopped at its time limit."""
    stdout: bytes
    stderr: bytes

    def check(self, remedy: str) -> CompletedCommand:
        """Itself, if the command succeeded.

        Raises:
            SlurmCommandError: it did not.
        """
        if self.status == 0:
            return self
        raise SlurmCommandError(self.argv, self.status, self.stderr.decode("utf-8", "backslashreplace"), remedy)


class CommandRunner(Protocol):
    """Runs one command to its end, without a shell."""

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str]
    ) -> CompletedCommand:
        """Run ``argv`` with exactly the environment ``env``.

        A command that is still running after ``timeout_s`` is killed with all its children; that is status ``None``, with
        the output so far. A program that is not there is status 127, as a shell has it,
        and one that cannot be run 126. Never raises for what the command does.
        """
        ...


_STOPPED_BY_TIMEOUT = 124
_EXEC_FAILED = (CANNOT_RUN, NOT_FOUND)
_SETPRIV = shutil.which("setpriv", path=SEARCH_PATH)
_TIMEOUT = shutil.which("timeout", path=SEARCH_PATH)
LATER_S = 1.0
"""A bound command's own limit comes so much after the caller's, who thus stops it first, if he can."""


@dataclass(frozen=True, slots=True)
class LocalCommandRunner:
    """Runs commands on this machine."""

    bound: bool = False
    """A command ends with its caller: it is killed when he dies, and at its time limit also while he is paused. That costs
    3 ms. For commands that change something, so that whoever takes over knows when the last one is over."""

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str]
    ) -> CompletedCommand:
        bound = self.bound and _SETPRIV is not None and _TIMEOUT is not None
        limit = (f"{_SETPRIV}", "--pdeathsig", "TERM", f"{_TIMEOUT}", "-s", "KILL", f"{timeout_s + LATER_S:.3f}")
        try:
            process = subprocess.Popen(
                (*limit, *argv) if bound else argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
            return CompletedCommand(tuple(argv), status, b"", str(error).encode("utf-8", "surrogateescape"))
        with process:
            try:
                stdout, stderr = process.communicate(stdin, timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
                return CompletedCommand(tuple(argv), None, stdout, stderr)
        own_status = _own_status(process.returncode, stderr) if bound else process.returncode
        return CompletedCommand(tuple(argv), own_status, stdout, stderr)


def _own_status(status: int, stderr: bytes) -> int | None:
    """A command's status as it is without other programs in between; what these may not do is no missing command."""
    if status == NOT_FOUND and stderr.startswith(b"setpriv:"):
        return CANNOT_RUN
    if status in _EXEC_FAILED:
        return status
    if status == _STOPPED_BY_TIMEOUT:
        return None
    return 128 - status if status > 128 else status

"""How a Slurm command is run. Everything above takes a :class:`CommandRunner`, so that it can also reach into a
container.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
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
    cut: bool = False
    """It wrote more than it was allowed to, and was stopped; :attr:`stdout` is the beginning."""

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
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        """Run ``argv`` with exactly the environment ``env``.

        One that writes more than ``most_bytes`` to standard output or standard error is killed with all its children as soon
        as it has: :attr:`CompletedCommand.cut`; a command that is so bounded gets no ``stdin``.
        A command that is still running after ``timeout_s`` is killed with all its children; that is status ``None``, with
        the output so far. A program that is not there is status 127, as a shell has it,
        and one that cannot be run 126. Never raises for what the command does.
        """
        ...


_STOPPED_BY_TIMEOUT = 124
_EXEC_FAILED = (CANNOT_RUN, NOT_FOUND)
_SETPRIV = shutil.which("setpriv", path=SEARCH_PATH)
_TIMEOUT = shutil.which("timeout", path=SEARCH_PATH)
_MOST_AT_ONCE = 65536
"""Bytes of one read: as many as a pipe holds."""
LATER_S = 1.0
"""A bound command's own limit comes so much after the caller's, who thus stops it first, if he can."""


@dataclass(frozen=True, slots=True)
class LocalCommandRunner:
    """Runs commands on this machine."""

    bound: bool = False
    """A command ends with its caller: it is killed when he dies, and at its time limit also while he is paused. That costs
    3 ms. For commands that change something, so that whoever takes over knows when the last one is over."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        bound = self.bound and _SETPRIV is not None and _TIMEOUT is not None
        limit = (f"{_SETPRIV}", "--pdeathsig", "TERM", f"{_TIMEOUT}", "-s", "KILL", f"{timeout_s + LATER_S:.3f}")
        try:
            process = subprocess.Popen(
                (*limit, *argv) if bound else argv,
                stdin=subprocess.PIPE if most_bytes is None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
            return CompletedCommand(tuple(argv), status, b"", str(error).encode("utf-8", "surrogateescape"))
        read_so_far = bytearray(), bytearray()
        with process:
            try:
                if most_bytes is None:
                    (stdout, stderr), cut = process.communicate(stdin, timeout_s), False
                else:
                    stdout, stderr, cut = _read_bounded(process, timeout_s, most_bytes, read_so_far)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                # Who escaped the signal may hold a bounded command's pipes, and fill them: what was read is enough.
                stdout, stderr = map(bytes, read_so_far) if most_bytes is not None else process.communicate()
                return CompletedCommand(tuple(argv), None, stdout, stderr)
        own_status = _own_status(process.returncode, stderr) if bound else process.returncode
        return CompletedCommand(tuple(argv), own_status, stdout, stderr, cut=cut)


def _read_bounded(
    process: subprocess.Popen[bytes], timeout_s: float, most_bytes: int, read_so_far: tuple[bytearray, bytearray]
) -> tuple[bytes, bytes, bool]:
    """What a command writes, and whether it was killed because one of its outputs is longer than ``most_bytes``.

    ``read_so_far`` takes in both outputs as they come, so that they are there at the time limit, too.

    Raises:
        subprocess.TimeoutExpired: it neither ended nor wrote so much within ``timeout_s``.
    """
    until_s = time.monotonic() + timeout_s
    streams = zip((process.stdout, process.stderr), read_so_far, strict=True)
    found = {stream: said for stream, said in streams if stream is not None}
    with selectors.DefaultSelector() as selector:
        for stream in found:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and all(len(said) <= most_bytes for said in found.values()):
            ready = selector.select(max(until_s - time.monotonic(), 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _ in ready:
                data = os.read(key.fd, _MOST_AT_ONCE)
                found[key.fileobj] += data  # type: ignore[index]  # what was registered
                if not data:
                    selector.unregister(key.fileobj)
    stdout, stderr = (bytes(said[:most_bytes]) for said in found.values())
    cut = any(len(said) > most_bytes for said in found.values())
    if cut:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(max(until_s - time.monotonic(), 0.0) if not cut else None)
    return stdout, stderr, cut


def _own_status(status: int, stderr: bytes) -> int | None:
    """A command's status as it is without other programs in between; what these may not do is no missing command."""
    if status == NOT_FOUND and stderr.startswith(b"setpriv:"):
        return CANNOT_RUN
    if status in _EXEC_FAILED:
        return status
    if status == _STOPPED_BY_TIMEOUT:
        return None
    return 128 - status if status > 128 else status

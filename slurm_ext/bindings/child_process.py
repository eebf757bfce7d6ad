"""A child process that answers questions over pipes, and whose end, silence or nonsense costs its parent one answer."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from slurm_soda.slurm_ext.errors import SlurmError

_HEAD = re.compile(rb"([0-9]{1,12})\n")
_MOST_HEAD = 13
_AT_ONCE = 1024 * 1024
"""Bytes of one read, and of the pipe where the system allows it."""
_MOST_COMPLAINT = 500


class ChildError(SlurmError):
    """The child did not answer; it is ended, and the next question starts another one."""


@dataclass
class ChildProcess:
    """One child at a time, started when it is first asked."""

    argv: Sequence[str]
    env: Mapping[str, str]
    most_bytes: int = 1024**3
    """A longer answer is none."""
    _process: subprocess.Popen[bytes] | None = None
    _complaints: bytearray = field(default_factory=bytearray)
    """The end of what it wrote to standard error."""

    @property
    def runs(self) -> bool:
        """Whether there is one."""
        return self._process is not None

    def start(self, timeout_s: float) -> bytes:
        """Start one, and wait for what it says first.

        Raises:
            ChildError: it cannot be started, or says nothing that can be read.
        """
        self.stop()
        self._complaints.clear()
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.env),
                start_new_session=True,
                pipesize=_AT_ONCE,
            )
        except OSError as error:
            raise ChildError(f"{self.argv[0]} cannot be started: {error}") from error
        return self._answer(timeout_s)

    def ask(self, timeout_s: float) -> bytes:
        """The answer to one question, of the child that runs.

        Raises:
            ChildError: it ended, was too slow, or answered in another form.
        """
        if self._process is None:
            raise ChildError("it does not run")
        with selectors.DefaultSelector() as selector:
            selector.register(_pipe(self._process.stdout), selectors.EVENT_READ)
            if (
                selector.select(0) and self._process.poll() is None
            ):  # it would be taken for the answer, and each one after
                raise self._failure("spoke before it was asked")
        try:
            os.write(_pipe(self._process.stdin), b"\n")
        except OSError:  # it has ended: what it said on its way tells more
            raise self._failure("ended") from None
        return self._answer(timeout_s)

    def stop(self) -> None:
        """End it with all that it may have started."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout, process.stderr):
                _close(pipe)

    def _answer(self, timeout_s: float) -> bytes:
        process, until_s = self._process, time.monotonic() + timeout_s
        assert process is not None
        out, err = _pipe(process.stdout), _pipe(process.stderr)
        found, length = bytearray(), None
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            selector.register(err, selectors.EVENT_READ)
            while length is None or len(found) < length:
                ready = [key.fd for key, _ in selector.select(max(until_s - time.monotonic(), 0.0))]
                if not ready:
                    raise self._failure(f"did not answer within {timeout_s:.0f} s")
                if err in ready and not self._take_complaint(err):
                    selector.unregister(err)
                if out not in ready:
                    continue
                data = os.read(out, _AT_ONCE)
                if not data:
                    raise self._failure("ended")
                found += data
                if length is None:
                    length = self._length(found)
        if len(found) > length:
            raise self._failure("answered more than it announced")
        return bytes(found)

    def _length(self, found: bytearray) -> int | None:
        """How long the answer is by its head, which is taken off; ``None`` while that is not whole."""
        head = _HEAD.match(found)
        if head is None:
            if len(found) >= _MOST_HEAD or b"\n" in found:
                raise self._failure(f"answered {bytes(found[:40])!r}, which is no answer")
            return None
        length = int(head[1])
        if length > self.most_bytes:
            raise self._failure(f"announced an answer of {length} bytes, more than {self.most_bytes}")
        del found[: head.end()]
        return length

    def _take_complaint(self, err: int) -> bool:
        data = os.read(err, _AT_ONCE)
        self._complaints += data
        del self._complaints[:-_MOST_COMPLAINT]
        return bool(data)

    def _failure(self, what: str) -> ChildError:
        process = self._process
        if process is not None and what == "ended":
            what = _describe_end(process)
            os.set_blocking(_pipe(process.stderr), False)
            with suppress(BlockingIOError):
                while self._take_complaint(_pipe(process.stderr)):
                    pass
        self.stop()
        said = self._complaints.decode("utf-8", "backslashreplace").strip()
        return ChildError(f"the child process {what}" + (f"; it wrote: {said}" if said else ""))


def _describe_end(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return "closed its output"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _pipe(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(OSError):
            pipe.close()

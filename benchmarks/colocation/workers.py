"""Workers as the one who measures sees them: processes that answer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]


class WorkerError(RuntimeError):
    """A worker ended, or said what cannot be."""


class Process:
    """One worker. Use as a context manager: it is ended, whatever happens."""

    def __init__(self, python: str, device: str, environment: Mapping[str, str]) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        argv = [python, "-m", "benchmarks.colocation.worker", device]
        self._process = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.hello: dict[str, Any] = {}

    def __enter__(self) -> Process:
        try:
            self.hello = self.hear()
        except WorkerError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def say(self, **what: Any) -> None:
        """Ask for something; the answer is to be :meth:`hear`."""
        try:
            print(json.dumps(what), file=_pipe(self._process.stdin), flush=True)
        except BrokenPipeError:
            raise WorkerError(self._end()) from None

    def hear(self) -> dict[str, Any]:
        """The next answer.

        Raises:
            WorkerError: it ended instead, or said what is no answer.
        """
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise WorkerError(self._end())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise WorkerError(f"a worker said {line[:80]!r}, which is no answer")
        return answer

    def ask(self, **what: Any) -> dict[str, Any]:
        """Both."""
        self.say(**what)
        return self.hear()

    def _end(self) -> str:
        status = self._process.wait()
        return f"a worker ended with status {status}; what it said is above (PyTorch must be importable: --python)"


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe

"""Errors of the simulator; each is one line that names the file, the value and what would be right."""

from __future__ import annotations

from slurm_soda.wire.errors import SodaError


class SimulatorError(SodaError):
    """A simulation cannot be run as asked."""


class TraceError(SimulatorError):
    """A line of a trace that cannot be used.

    Attributes:
        path: the file as it was named.
        line: its line, 1 first; 0 where the whole file is meant.
    """

    def __init__(self, path: str, line: int, problem: str) -> None:
        self.path, self.line, self.problem = path, line, problem
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")

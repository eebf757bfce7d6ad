"""What is wrong with a file: the first fault ends a strict reading, a lenient one skips and lists them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn
from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.traces.trace import SkippedEntry

_SHOWN = 60


class TraceFaults:
    """Collects the faults of one file.

    Attributes:
        path: the file as it was named.
        lenient: whether faults are skipped and listed.
    """

    def __init__(self, path: str, *, lenient: bool) -> None:
        self.path, self.lenient = path, lenient
        self._found: list[SkippedEntry] = []
        self._lines: set[int] = set()

    def row(self, line: int, reason: str, value: str) -> None:
        """A line that gives no job; only its first fault is kept."""
        if line not in self._lines:
            self._lines.add(line)
            self._found.append(SkippedEntry(line, reason, shorten(value)))

    def part(self, line: int, reason: str, value: str) -> None:
        """Something else that reading leaves out, such as a whole column."""
        self._found.append(SkippedEntry(line, reason, shorten(value)))

    def fail(self, line: int, problem: str) -> NoReturn:
        """End the reading: the file as a whole cannot be used, lenient or not.

        Raises:
            TraceError: always.
        """
        raise TraceError(self.path, line, problem)

    def settle(self) -> None:
        """End a strict reading that found faults, with the one of the first line.

        Raises:
            TraceError: reading is strict and there are faults.
        """
        if self._found and not self.lenient:
            first = min(self._found, key=lambda fault: fault.line)
            remedy = "correct it, or leave such lines out with --lenient"
            self.fail(first.line, f"{first.reason}, not {first.value!r}; {remedy}")

    def sound(self, lines: Sequence[int]) -> BoolColumn:
        """Which of these lines have no fault."""
        if not self._lines:
            return np.ones(len(lines), dtype=np.bool_)
        return np.array([line not in self._lines for line in lines], dtype=np.bool_)

    def skipped(self) -> tuple[SkippedEntry, ...]:
        """All faults, ascending by line."""
        return tuple(sorted(self._found, key=lambda fault: fault.line))

    def no_jobs(self, unused: Mapping[str, int] = MappingProxyType({})) -> NoReturn:
        """End the reading: nothing is left to simulate.

        Args:
            unused: how many records are sound but no job to run, by the reason.

        Raises:
            TraceError: always.
        """
        if not self._found:
            counts = ", ".join(f"{reason}: {count}" for reason, count in unused.items())
            self.fail(0, f"it has no job to run ({counts})" if counts else "it has no jobs")
        first = self.skipped()[0]
        self.fail(first.line, f"no job is left; the first that was skipped: {first.reason}, not {first.value!r}")


def shorten(text: str) -> str:
    """A text as an error shows it: not too long for one line."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

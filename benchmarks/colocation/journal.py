"""What was measured so far, one line of JSON each: a run that was cut goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.colocation.kinds import Run, name_of


class JournalError(ValueError):
    """The journal is of something else."""


class Journal:
    """Results by way of sharing (with MPS or without) and run, on one machine."""

    def __init__(self, path: Path) -> None:
        """Read what there is; a last line that was cut off is dropped.

        Raises:
            JournalError: another line is no result.
        """
        self._path = path
        self.machine: dict[str, Any] = {}
        self._results: dict[tuple[bool, str], dict[str, Any]] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        for number, line in enumerate(lines[:-1], start=1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                raise JournalError(
                    f"{path}, line {number}: this is no result: {line[:60]!r}; delete the file"
                ) from None
        if lines[-1]:
            path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")

    def of(self, machine: Mapping[str, Any]) -> None:
        """Say on what is measured.

        Raises:
            JournalError: earlier lines were measured elsewhere, or with another version.
        """
        now = {key: value for key, value in machine.items() if key not in VARYING}
        for key, value in now.items():
            if self.machine and self.machine.get(key) != value:
                before = self.machine.get(key)
                raise JournalError(f"{self._path} was measured with {key} {before!r}, not {value!r}: use another --out")
        if not self.machine:
            self._append({"machine": dict(machine)})

    def get(self, mps: bool, run: Run) -> dict[str, Any] | None:
        """A run's result, if it has one."""
        return self._results.get((mps, name_of(run)))

    def add(self, mps: bool, run: Run, found: Mapping[str, Any]) -> None:
        """Keep a result, on the disk first."""
        self._append({"mps": mps, "run": name_of(run), "found": dict(found)})

    def _append(self, entry: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        if "machine" in entry:
            self.machine = entry["machine"]
        else:
            self._results[bool(entry["mps"]), str(entry["run"])] = entry["found"]


VARYING = ("date", "free_mib")
"""What may differ between two parts of one measurement."""

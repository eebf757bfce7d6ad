"""Measured tables as columns of numbers: CSV files with a header, every line complete, without quotes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.speed.small_files import read_small_file

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ValueRange:
    """What a measured number may be: finite, and not below ``low`` (or not equal to it, if ``above``)."""

    allowed: str
    low: float
    above: bool = False
    whole: bool = False


ANY_NUMBER = ValueRange("a number", -math.inf)
FROM_0 = ValueRange("a number from 0", 0.0)
ABOVE_0 = ValueRange("a number above 0", 0.0, above=True)
COUNT_FROM_1 = ValueRange("a whole number from 1", 1.0, whole=True)


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """The columns of one file, in the order of its lines."""

    path: str
    numbers: Mapping[str, FloatColumn]
    texts: Mapping[str, tuple[str, ...]]
    line: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.line)

    def fail(self, row: int, problem: str) -> TraceError:
        """The error of one row."""
        return TraceError(self.path, self.line[row], problem)


def read_measured(path: Path, numbers: Mapping[str, ValueRange], texts: tuple[str, ...] = ()) -> MeasuredTable:
    """Read a file that has these columns, in any order, and no others.

    Raises:
        TraceError: the file cannot be read or has no rows, a column is missing, unknown or there twice, a line is short
            or long, or a cell is not what its column allows.
    """
    rows, lines = _rows(path)
    header = [name.strip() for name in rows[0]]
    wanted = (*texts, *numbers)
    if sorted(header) != sorted(wanted):
        raise TraceError(
            str(path), lines[0], f"the header must name the columns {', '.join(wanted)}, not {','.join(header)!r}"
        )
    if len(rows) == 1:
        raise TraceError(str(path), 0, "it has a header and nothing else; a table must have measurements")
    for row, line in zip(rows[1:], lines[1:], strict=True):
        if len(row) != len(header):
            raise TraceError(
                str(path), line, f"a line must have {len(header)} cells as the header has, not {','.join(row)!r}"
            )
    columns = dict(zip(header, zip(*rows[1:], strict=True), strict=True))
    return MeasuredTable(
        path=str(path),
        numbers={name: _column(path, name, columns[name], lines[1:], span) for name, span in numbers.items()},
        texts={name: tuple(cell.strip() for cell in columns[name]) for name in texts},
        line=tuple(lines[1:]),
    )


def _rows(path: Path) -> tuple[list[list[str]], list[int]]:
    text = read_small_file(path, "utf-8-sig")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise TraceError(str(path), 0, "it is empty; a table must have a header and measurements")
    return [line.split(",") for _, line in lines], [number for number, _ in lines]


def _column(path: Path, name: str, cells: tuple[str, ...], lines: list[int], span: ValueRange) -> FloatColumn:
    column = np.array([float(cell) if _NUMBER.fullmatch(cell) else math.nan for cell in cells])
    sound = np.isfinite(column) & (column > span.low if span.above else column >= span.low)
    if span.whole:
        sound &= column == np.floor(column)
    if not sound.all():
        at = int(np.argmin(sound))
        raise TraceError(str(path), lines[at], f"{name} must be {span.allowed}, not {cells[at]!r}")
    return column

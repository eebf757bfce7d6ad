"""A table of comma-separated values with a header line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.traces.parsing.number_columns import NumberKind, read_numbers
from slurm_soda.simulator.traces.parsing.text_lines import TextLines, read_lines
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults, shorten


@dataclass(frozen=True, slots=True)
class CsvTable:
    """Columns of texts by name, and the line of each row."""

    columns: dict[str, Sequence[str]]
    line: Sequence[int]
    faults: TraceFaults

    def __len__(self) -> int:
        return len(self.line)

    def numbers(self, name: str, kind: NumberKind, *, blank: float | None = None) -> FloatColumn:
        """A column as numbers, see :func:`~slurm_soda.simulator.traces.parsing.number_columns.read_numbers`."""
        return read_numbers(name, self.columns[name], self.line, kind, self.faults, blank=blank)

    def texts(self, name: str) -> list[str]:
        """A column as texts, without spaces around them."""
        return [cell.strip() for cell in self.columns[name]]


def read_csv_table(path: Path, required: Sequence[str], optional: Sequence[str], faults: TraceFaults) -> CsvTable:
    """Read a table whose columns come in any order.

    Faults are a line with more or fewer cells than the header, or with a quote that is not closed (a cell never holds
    a newline), and a column that is neither required nor optional.

    Raises:
        TraceError: the file cannot be read, a required column is missing or a column comes twice, or there is no row.
    """
    lines = read_lines(path, faults)
    header = _header(lines, faults)
    known = (*required, *optional)
    for name in required:
        if name not in header:
            faults.fail(lines.number[0], f"the header must have the column {name}; it is {shorten(','.join(header))!r}")
    for name in header:
        if header.count(name) > 1:
            faults.fail(lines.number[0], f"the column {shorten(name)!r} comes twice in the header")
        if name not in known:
            faults.part(lines.number[0], f"a column must be one of {', '.join(known)}", name)
    faults.settle()
    if len(lines) == 1:
        faults.fail(0, "it has a header but no jobs")
    return _rows(TextLines(lines.text[1:], lines.number[1:]), header, faults)


def _header(lines: TextLines, faults: TraceFaults) -> list[str]:
    cells = split_line(lines.text[0])
    if cells is None:
        faults.fail(lines.number[0], "a quote in the header is not closed")
    return [cell.strip() for cell in cells]


def _rows(lines: TextLines, header: Sequence[str], faults: TraceFaults) -> CsvTable:
    rows: list[list[str]] = []
    width, numbers = len(header), lines.number
    if any('"' in text for text in lines.text):
        rows = [split_line(text) or [] for text in lines.text]
    else:
        rows = [text.split(",") for text in lines.text]
    if set(map(len, rows)) != {width}:
        numbers = []
        for cells, line, text in zip(rows, lines.number, lines.text, strict=True):
            if len(cells) == width:
                numbers.append(line)
            else:
                faults.row(line, f"a line must have {width} cells as the header has", text)
        faults.settle()
        rows = [cells for cells in rows if len(cells) == width]
    if not rows:
        faults.no_jobs()
    return CsvTable(dict(zip(header, zip(*rows, strict=True), strict=True)), numbers, faults)


def split_line(text: str) -> list[str] | None:
    """The cells of one line, or ``None`` if a quote is not closed."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration):
        return None

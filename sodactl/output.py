"""How sodactl prints: tables for people, one JSON document for scripts, and nothing that a job's owner wrote acts on a
terminal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from slurm_soda.daemon import readable

Document = dict[str, Any]
"""What a command found, as plain data: printed as it stands with ``--json``, else drawn."""

_MILLION = 1e6

WIDE_COLUMNS = 250
"""Width of a table whose reader is a program: nothing is cut off."""


def print_json(document: Document) -> None:
    r"""One JSON document on stdout.

    Bytes that are not UTF-8 appear as lone surrogates (byte 0xff as ``\udcff``), which Python's ``json`` and
    ``surrogateescape`` turn back into the byte; numbers are as :func:`without_nonfinite_numbers` makes them.
    """
    click.echo(json.dumps(without_nonfinite_numbers(document), indent=2, ensure_ascii=True, allow_nan=False))


def without_nonfinite_numbers(value: Any) -> Any:
    """The same plain data as JSON shall have it: ``None`` for NaN and infinity, no noise behind the digits that count.

    Whole numbers (ids, counts) stay as they are; others keep 12 digits, and from a million on all before the point and six
    behind it: microseconds of a Unix time.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.12g}") if abs(value) < _MILLION else round(float(value), 6)
    if isinstance(value, Mapping):
        return {str(key): without_nonfinite_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nonfinite_numbers(inner) for inner in value]
    return value


def escape_unprintable(text: str) -> str:
    r"""Text that somebody else wrote, safe on any terminal: what would move, colour or hide something is spelled out.

    Undecodable bytes appear as ``\xff``, control and formatting characters as Python's escapes.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return (
        char.encode("unicode_escape", "surrogatepass").decode("ascii")
        if code < 0xD800 or code > 0xDFFF
        else f"\\u{code:04x}"
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; numbers stand right."""

    title: str
    right: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """A table; cells are made printable here, so callers pass what they have."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --json does not need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_unprintable(cell)) for cell in row))
    width = None if sys.stdout.isatty() else WIDE_COLUMNS
    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False, width=width)
    with console.capture() as drawn:
        console.print(table)
    # rich pads the last column, which a narrow terminal would wrap and a pipe would carry along.
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def print_fields(fields: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
    """Names and values, one a line, values below each other."""
    listed = list(fields)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        click.echo(f"{' ' * indent}{name:<{width}}  {escape_unprintable(value)}".rstrip())


def print_line(text: str = "") -> None:
    """One line of text, made printable."""
    click.echo(escape_unprintable(text))


def print_lines(lines: Iterable[str], *, indent: int = 0) -> None:
    """Sentences such as reasons, one a line."""
    for line in lines:
        print_line(f"{' ' * indent}{line}")


def warn(text: str) -> None:
    """One line on stderr, so that ``--json`` stays one document."""
    click.echo(f"warning: {escape_unprintable(text)}", err=True)


format_duration = readable.format_duration
format_instant = readable.format_instant
format_count = readable.format_count
format_percent = readable.format_percent


def format_first(names: Sequence[object], most: int = 5) -> str:
    """The first few of a list, and how many more there are: ``n1, n2 and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def format_amount(value: float | None, unit: str = "") -> str:
    """A number for people, whole; ``-`` if unknown."""
    return "-" if value is None else f"{value:,.0f} {unit}".rstrip()


def format_hints(hints: Mapping[str, Any]) -> str:
    """Hints on one line, ``model=resnet50 batch_size=64``."""
    return " ".join(f"{key}={value}" for key, value in hints.items())

"""The table of ``compare`` and ``whatif`` on a terminal, one row a policy."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column

_OPTIONAL_COLUMNS = (
    "p99", "makespan", "median", "fairness", "JCT / run time", "CPUs used", "p95",
    "CPU jobs' JCT", "GPU jobs' JCT", "GPUs used", "GPUs shared",
    "slowdown", "avg wait",
    "preemptions", "CPU jobs in 10 s", "GPUs active", "GPU jobs at once", "GPU utilisation",
)  # fmt: skip
"""Columns that a narrow terminal does without, the first one first."""


def print_policy_runs(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print the table; where a terminal is narrow, without the columns that say least. Files and pipes get all."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    spare = [title for title in _OPTIONAL_COLUMNS if title in titles]
    while width is not None and spare and _width(titles, cells) > width:
        at = titles.index(spare.pop(0))
        titles, cells = _drop_column(titles, at), [_drop_column(line, at) for line in cells]
    output.print_table([Column(title, right=at > 0) for at, title in enumerate(titles)], cells)


def _width(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Of the table as it is printed, with two spaces between columns."""
    return sum(max(map(len, column)) + 2 for column in zip(titles, *cells, strict=True)) - 2


def _drop_column(cells: Sequence[str], at: int) -> list[str]:
    return [*cells[:at], *cells[at + 1 :]]

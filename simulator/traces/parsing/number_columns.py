"""Cells of a trace as numbers, a column at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults

MAX_TIME_S = 1e11
"""3 000 years: sums over millions of jobs stay exact to the microsecond."""
MAX_COUNT = 1e9


@dataclass(frozen=True, slots=True)
class NumberKind:
    """What a number may be: from ``low`` to ``high``."""

    allowed: str
    low: float
    high: float
    whole: bool = False


SECONDS = NumberKind("a number of seconds from 0", 0.0, MAX_TIME_S)
RUN_TIME = NumberKind("a number of seconds above 0", math.ulp(0.0), MAX_TIME_S)
COUNT = NumberKind("a whole number from 0", 0.0, MAX_COUNT, whole=True)
COUNT_FROM_1 = NumberKind("a whole number from 1", 1.0, MAX_COUNT, whole=True)
MEBIBYTES = NumberKind("a whole number of MiB from 0", 0.0, 1e15, whole=True)
STEPS = NumberKind("a number from 0", 0.0, 1e15)
FACTOR = NumberKind("a factor from 1", 1.0, 1e6)
FLAG = NumberKind("0 or 1", 0.0, 1.0, whole=True)


def read_numbers(
    name: str,
    cells: Sequence[str],
    lines: Sequence[int],
    kind: NumberKind,
    faults: TraceFaults,
    *,
    blank: float | None = None,
) -> FloatColumn:
    """One column; NaN where a cell is no such number, which is a fault of its line.

    Args:
        name: the column, for the error.
        cells: its texts; spaces around a number do no harm.
        lines: the line of each.
        kind: what is allowed.
        faults: takes what is not.
        blank: value of an empty cell; by default that is a fault too.
    """
    numbers = _parse(cells)
    sound = (numbers >= kind.low) & (numbers <= kind.high)
    if kind.whole:
        sound &= np.floor(numbers) == numbers
    if sound.all():
        return numbers
    for at in np.flatnonzero(~sound).tolist():
        if blank is not None and not cells[at].strip():
            numbers[at] = blank
        else:
            faults.row(lines[at], f"{name} must be {kind.allowed}{_limit(numbers[at], kind)}", cells[at])
            numbers[at] = math.nan
    return numbers


def _limit(number: float, kind: NumberKind) -> str:
    return f" to {kind.high:.0f}" if number > kind.high and kind is not FLAG else ""


def _parse(cells: Sequence[str]) -> FloatColumn:
    distinct = set(cells)
    if 2 * len(distinct) < len(cells):  # usual for counts and limits: read each text once
        known = {cell: _number(cell) for cell in distinct}
        return np.fromiter(map(known.__getitem__, cells), dtype=np.float64, count=len(cells))
    joined = ",".join(distinct)
    if "_" not in joined and joined.isascii():
        try:
            return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
        except ValueError:
            pass
    return np.fromiter(map(_number, cells), dtype=np.float64, count=len(cells))


def _number(cell: str) -> float:
    """NaN for what is no number to people: Python would also read ``1_000`` and digits of other scripts."""
    try:
        return float(cell) if "_" not in cell and cell.isascii() else math.nan
    except ValueError:
        return math.nan

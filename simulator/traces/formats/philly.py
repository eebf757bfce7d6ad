"""Microsoft's Philly trace as one CSV: a job a line, with the moment of its submission in text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes
from slurm_soda.simulator.traces.parsing import number_columns as n
from slurm_soda.simulator.traces.parsing.csv_table import read_csv_table
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.parsing.workload_assembly import make_trace
from slurm_soda.simulator.traces.trace import JobTrace

REQUIRED = ("timestamp", "duration", "num_gpus")
OPTIONAL = ("gpu_time", "cluster")
"""``gpu_time`` is GPUs x duration and not read."""
_MOMENT = r"(?:19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"
_MOMENTS = re.compile(f"(?:{_MOMENT},)*")
_ONE = re.compile(_MOMENT)


def read_philly(path: Path, *, lenient: bool, profiles: MeasuredTimes | None) -> JobTrace:
    """Read a Philly trace, in any order of lines; second 0 is the first submission.

    ``cluster`` (Philly's virtual cluster) becomes the user: all jobs share one partition.

    Raises:
        TraceError: the file cannot be used.
    """
    del profiles  # the file has run times
    faults = TraceFaults(str(path), lenient=lenient)
    table = read_csv_table(path, REQUIRED, OPTIONAL, faults)
    moment_s = _moments(table.columns["timestamp"], table.line, faults)
    columns: dict[str, Any] = {
        "run_s": table.numbers("duration", n.RUN_TIME),
        "gpus": table.numbers("num_gpus", n.COUNT_FROM_1),
    }
    if "cluster" in table.columns:
        columns["user"] = table.texts("cluster")
    faults.settle()
    sound = faults.sound(table.line)
    origin_s = float(moment_s[sound].min()) if sound.any() else 0.0
    columns["submit_s"] = moment_s - origin_s
    return make_trace("philly", path.stem, table.line, columns, faults, origin_s=origin_s)


def _moments(cells: Sequence[str], lines: Sequence[int], faults: TraceFaults) -> FloatColumn:
    """Unix times of UTC texts; NaN, and a fault, where a cell is none."""
    if _MOMENTS.fullmatch(",".join(cells) + ","):
        try:
            return _unix_s(cells)
        except ValueError:  # such as a month 13: find out where
            pass
    moments = np.full(len(cells), np.nan)
    for at, cell in enumerate(cells):
        try:
            moments[at] = _moment(cell.strip())
        except ValueError:
            faults.row(lines[at], "timestamp must be a moment from 1970 on in UTC like 2017-10-09 07:01:55", cell)
    return moments


def _moment(cell: str) -> float:
    if not _ONE.fullmatch(cell):
        raise ValueError(cell)
    return float(_unix_s([cell])[0])


def _unix_s(cells: Sequence[str]) -> FloatColumn:
    return np.array(cells, dtype="datetime64[s]").astype(np.int64).astype(np.float64)

"""The traces of Gavel's simulator: steps to train, without run times; those come from measured steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slurm_soda.simulator.traces.formats.measured_time_lookup import look_up_times_s
from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes, TrainingStepTimes
from slurm_soda.simulator.traces.parsing import number_columns as n
from slurm_soda.simulator.traces.parsing.text_lines import TextLines, read_lines
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.parsing.workload_assembly import make_trace
from slurm_soda.simulator.traces.trace import JobTrace

CELLS = (
    "job type", "command", "working directory", "name of the step option", "needs data", "steps", "scale factor",
    "priority weight", "SLO", "arrival time",
)  # fmt: skip
"""Of each line, between tabs; there is no header. Commands, priorities and SLOs are not read."""
_JOB_TYPE = re.compile(r"\s*(?P<model>\S.*?)\s*(\(batch size (?P<batch>[0-9]{1,9})\))?\s*")


def read_gavel(path: Path, *, lenient: bool, profiles: MeasuredTimes | None) -> JobTrace:
    """Read a trace of Gavel's simulator. Scale factors are GPUs; a run time is steps x the measured time of one.

    Raises:
        TraceError: the file cannot be used, or there are no step times for it.
    """
    faults = TraceFaults(str(path), lenient=lenient)
    if not isinstance(profiles, TrainingStepTimes):
        faults.fail(0, "a gavel trace has no run times; give measured ones with --pairs FILE")
    lines = read_lines(path, faults)
    rows, line = _rows(lines, faults)
    cells = dict(zip(CELLS, zip(*rows, strict=True), strict=True))
    columns: dict[str, Any] = _job_types(cells["job type"], line, faults)
    for name, cell, kind in (
        ("iterations", "steps", n.COUNT_FROM_1),
        ("gpus", "scale factor", n.COUNT_FROM_1),
        ("submit_s", "arrival time", n.SECONDS),
    ):
        columns[name] = n.read_numbers(cell, cells[cell], line, kind, faults)
    faults.settle()
    columns["run_s"] = columns["iterations"] * look_up_times_s(profiles.step_s, columns, line, faults)
    return make_trace("gavel", path.stem, line, columns, faults)


def looks_like_gavel(line: str) -> bool:
    """Whether a line has Gavel's cells."""
    cells = line.split("\t")
    return len(cells) == len(CELLS) and all(re.fullmatch(r"-?[0-9.]+", cell) for cell in cells[5:])


def _rows(lines: TextLines, faults: TraceFaults) -> tuple[list[list[str]], list[int]]:
    rows: list[list[str]] = []
    kept: list[int] = []
    for text, line in zip(lines.text, lines.number, strict=True):
        cells = text.split("\t")
        if len(cells) == len(CELLS):
            rows.append(cells)
            kept.append(line)
        else:
            faults.row(line, f"a line must have {len(CELLS)} cells between tabs ({', '.join(CELLS)})", text)
    faults.settle()
    if not rows:
        faults.no_jobs()
    return rows, kept


def _job_types(cells: Sequence[str], lines: Sequence[int], faults: TraceFaults) -> dict[str, Any]:
    """Model and batch size of job types such as ``ResNet-18 (batch size 128)``; batch size 0 where it is not said."""
    models: list[str] = []
    batches: list[int] = []
    for cell, line in zip(cells, lines, strict=True):
        match = _JOB_TYPE.fullmatch(cell)
        if match is None:
            faults.row(line, "job type must be like 'ResNet-18 (batch size 128)'", cell)
        models.append(match["model"] if match else "")
        batches.append(int(match["batch"] or 0) if match else 0)
    return {"model": models, "batch_size": np.array(batches, dtype=np.int64)}

"""The CSV of Tiresias' simulator, which also carries everything else that a workload knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes
from slurm_soda.simulator.traces.parsing import number_columns as n
from slurm_soda.simulator.traces.parsing.csv_table import CsvTable, read_csv_table
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.parsing.workload_assembly import distinct_names, make_trace
from slurm_soda.simulator.traces.trace import JobTrace

REQUIRED = ("num_gpu", "submit_time", "duration")
_THEIRS = ("job_id", "iterations", "model_name", "interval")
_POLLUX = ("application", "batch_size")
NUMBERS: Mapping[str, tuple[n.NumberKind, float | None]] = MappingProxyType({
    "batch_size": (n.COUNT, 0.0), "iterations": (n.STEPS, 0.0), "nodes": (n.COUNT_FROM_1, None),
    "gpus_per_node": (n.COUNT, None), "cpus": (n.COUNT, None), "memory_mib": (n.MEBIBYTES, None),
    "time_limit_s": (n.RUN_TIME, math.inf), "expected_s": (n.RUN_TIME, math.nan), "restart_s": (n.SECONDS, None),
    "saves_every_s": (n.SECONDS, None), "preemptible": (n.FLAG, None), "shares": (n.FLAG, None),
    "max_slowdown": (n.FACTOR, math.inf),
})  # fmt: skip
"""Columns of numbers with the names of a workload: what they may be, and the value of an empty cell."""
TEXTS = ("user", "partition", "gpu_type", "category", "qos")
"""Columns of texts with the names of a workload."""
OPTIONAL = (*_THEIRS, *_POLLUX, *(name for name in NUMBERS if name not in (*_THEIRS, *_POLLUX)), *TEXTS)


def read_tiresias(path: Path, *, lenient: bool, profiles: MeasuredTimes | None) -> JobTrace:
    """Read a trace of Tiresias' simulator; ``application`` goes before ``model_name`` where both are there.

    Raises:
        TraceError: the file cannot be used.
    """
    del profiles  # the file has run times
    faults = TraceFaults(str(path), lenient=lenient)
    table = read_csv_table(path, REQUIRED, OPTIONAL, faults)
    columns: dict[str, Any] = {
        "submit_s": table.numbers("submit_time", n.SECONDS),
        "run_s": table.numbers("duration", n.RUN_TIME),
        "gpus": table.numbers("num_gpu", n.COUNT),
    }
    for name, (kind, blank) in NUMBERS.items():
        if name in table.columns:
            columns[name] = table.numbers(name, kind, blank=blank)
    _check_requests(table, columns)
    columns |= _texts(table)
    if "job_id" in table.columns:
        columns["label"] = distinct_names("job_id", table.texts("job_id"), table.line, faults)
    return make_trace("tiresias", path.stem, table.line, columns, faults)


def _texts(table: CsvTable) -> dict[str, list[str]]:
    texts = {name: table.texts(name) for name in TEXTS if name in table.columns}
    model = next((name for name in ("application", "model_name") if name in table.columns), None)
    return texts | ({"model": table.texts(model)} if model else {})


def _check_requests(table: CsvTable, columns: Mapping[str, Any]) -> None:
    nothing = columns["gpus"] == 0
    if nothing.any():
        nothing = nothing & (columns["cpus"] == 0) if "cpus" in columns else nothing
        cells: Sequence[str] = table.columns["num_gpu"]
        for at in np.flatnonzero(nothing).tolist():
            table.faults.row(table.line[at], "a job must ask for GPUs, or for CPUs in a column cpus", cells[at])

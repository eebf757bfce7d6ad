"""The Standard Workload Format, version 2.2, of the Parallel Workloads Archive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn
from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes
from slurm_soda.simulator.traces.parsing import number_columns as n
from slurm_soda.simulator.traces.parsing.text_lines import TextLines, read_lines
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.parsing.workload_assembly import distinct_names, make_trace
from slurm_soda.simulator.traces.trace import JobTrace

FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
"""Of each line; -1 is unknown."""
_CANCELLED = 5
_PARTIAL = (2, 3, 4)
"""Pieces of a job that was checkpointed or swapped out; its whole has a line of its own."""
_SECONDS_OR_NOT = n.NumberKind("a number of seconds from 0, or -1 for unknown", -1.0, n.MAX_TIME_S)
_COUNT_OR_NOT = n.NumberKind("a whole number from 0, or -1 for unknown", -1.0, n.MAX_COUNT, whole=True)
_KINDS = {
    "submit time": n.SECONDS,
    "status": n.NumberKind("a whole number from -1 to 5", -1.0, 5.0, whole=True),
    "requested memory": n.NumberKind("a number of KB from 0, or -1 for unknown", -1.0, 1e15),
    **dict.fromkeys(("wait time", "run time", "requested time"), _SECONDS_OR_NOT),
    **dict.fromkeys(("allocated processors", "requested processors"), _COUNT_OR_NOT),
}
_READ = frozenset({*_KINDS, "job number", "user"})
_ORIGIN = re.compile(r"\s*;\s*UnixStartTime:\s*([0-9]{1,11})\b")


def read_swf(path: Path, *, lenient: bool, profiles: MeasuredTimes | None, gpus: bool = False) -> JobTrace:
    """Read a log in the Standard Workload Format; processors are CPU cores.

    Requested processors go before allocated ones, and all jobs share one partition. ``unused`` counts lines that are
    sound but no job to run: cancelled before the start, run time unknown or 0 (logs round down to seconds), processors
    unknown, and pieces of checkpointed jobs.

    Args:
        path: the file.
        lenient: skip and list faults.
        profiles: not needed.
        gpus: processors are GPUs (the format ``swf-gpu``).

    Raises:
        TraceError: the file cannot be used.
    """
    del profiles  # the file has run times
    faults = TraceFaults(str(path), lenient=lenient)
    lines = read_lines(path, faults)
    cells, line = _cells(lines, faults)
    numbers = {name: n.read_numbers(name, cells[name], line, kind, faults) for name, kind in _KINDS.items()}
    faults.settle()
    unused, usable = _sort_out(numbers, faults.sound(line))
    columns = {name: column[usable] for name, column in _columns(numbers, gpus=gpus).items()}
    kept = np.flatnonzero(usable).tolist()
    line = [line[at] for at in kept]
    columns["label"] = distinct_names("job number", [cells["job number"][at] for at in kept], line, faults)
    columns["user"] = [f"user{user}" if (user := cells["user"][at]) != "-1" else "unknown" for at in kept]
    name = "swf-gpu" if gpus else "swf"
    return make_trace(name, path.stem, line, columns, faults, origin_s=_origin_s(lines), unused=unused)


def looks_like_swf(line: str) -> bool:
    """Whether a line is a comment of a header, or has SWF's fields."""
    cells = line.split()
    return line.lstrip().startswith(";") or (
        len(cells) == len(FIELDS) and all(re.fullmatch(r"-?[0-9.]+", cell) for cell in cells)
    )


def _origin_s(lines: TextLines) -> float:
    found = (match for text in lines.text if text.lstrip().startswith(";") and (match := _ORIGIN.match(text)))
    match = next(found, None)
    return float(match[1]) if match else 0.0


def _cells(lines: TextLines, faults: TraceFaults) -> tuple[dict[str, Sequence[str]], Sequence[int]]:
    lines = lines.select([not text.lstrip().startswith(";") for text in lines.text])
    rows = [text.split() for text in lines.text]
    whole = [len(row) == len(FIELDS) for row in rows]
    if not all(whole):
        for text, number, sound in zip(lines.text, lines.number, whole, strict=True):
            if not sound:
                faults.row(number, f"a line must have {len(FIELDS)} fields ({', '.join(FIELDS)})", text)
        faults.settle()
        rows = [row for row in rows if len(row) == len(FIELDS)]
    if not rows:
        faults.no_jobs()
    wanted = [(name, at) for at, name in enumerate(FIELDS) if name in _READ]
    return {name: [row[at] for row in rows] for name, at in wanted}, lines.select(whole).number


def _sort_out(numbers: dict[str, FloatColumn], sound: BoolColumn) -> tuple[dict[str, int], BoolColumn]:
    """How many sound lines are no job to run, by the reason, and which lines are one."""
    run_s, status = numbers["run time"], numbers["status"]
    reasons = (
        ("pieces of a checkpointed job", np.isin(status, _PARTIAL)),
        ("cancelled before the start", (status == _CANCELLED) & (run_s <= 0)),
        ("run time unknown", run_s < 0),
        ("run time 0", run_s == 0),
        ("processors unknown", _processors(numbers) <= 0),
    )
    unused: dict[str, int] = {}
    usable = sound.copy()
    for reason, match in reasons:
        if count := int((usable & match).sum()):
            unused[reason] = count
        usable &= ~match
    return unused, usable


def _processors(numbers: dict[str, FloatColumn]) -> FloatColumn:
    return np.where(
        numbers["requested processors"] > 0, numbers["requested processors"], numbers["allocated processors"]
    )


def _columns(numbers: dict[str, FloatColumn], *, gpus: bool) -> dict[str, Any]:
    processors = _processors(numbers)
    kb, limit_s, wait_s = numbers["requested memory"], numbers["requested time"], numbers["wait time"]
    start_s = np.where(wait_s >= 0, numbers["submit time"] + wait_s, np.nan)
    return {
        "submit_s": numbers["submit time"],
        "run_s": numbers["run time"],
        "gpus": processors if gpus else np.zeros(len(processors)),
        "cpus": np.zeros(len(processors)) if gpus else processors,
        "memory_mib": np.where(kb > 0, np.ceil(kb * processors / 1024), 0.0),
        "time_limit_s": np.where(limit_s > 0, limit_s, np.inf),
        "observed_start_s": start_s,
        "observed_end_s": start_s + numbers["run time"],
    }

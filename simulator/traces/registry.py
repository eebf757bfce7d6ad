"""The one list of trace formats, and how a file's format is found.

A new format is one more :class:`TraceFormat` in :data:`FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from slurm_soda.policies.errors import no_such
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.traces.formats import philly, pollux
from slurm_soda.simulator.traces.formats.gavel import looks_like_gavel, read_gavel
from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes
from slurm_soda.simulator.traces.formats.swf import looks_like_swf, read_swf
from slurm_soda.simulator.traces.formats.tiresias import read_tiresias
from slurm_soda.simulator.traces.parsing.csv_table import split_line
from slurm_soda.simulator.traces.parsing.text_lines import COMPRESSED, is_compressed, with_newlines
from slurm_soda.simulator.traces.parsing.trace_faults import shorten
from slurm_soda.simulator.traces.trace import JobTrace

_HEAD_BYTES = 65536


class TraceReader(Protocol):
    """Reads one format.

    Raises:
        TraceError: the file cannot be used.
    """

    def __call__(self, path: Path, *, lenient: bool, profiles: MeasuredTimes | None) -> JobTrace:
        """Return the trace of a file."""
        ...


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format that users can name."""

    name: str
    summary: str
    looks_right: Callable[[str], bool]
    """Whether a file with this first line (blank lines apart) is of the format."""
    read: TraceReader


def _header_with(*names: str) -> Callable[[str], bool]:
    def looks_right(line: str) -> bool:
        return set(names) <= {cell.strip() for cell in split_line(line) or ()}

    return looks_right


def _read_sacct(path: Path, *, lenient: bool, profiles: MeasuredTimes | None) -> JobTrace:
    from slurm_soda.simulator.traces.sacct.dump import read_sacct  # noqa: PLC0415 - most runs read no accounting

    del profiles  # the dump has run times
    return read_sacct(path, lenient)


def _looks_like_sacct(line: str) -> bool:
    return re.search(r"(^|[^A-Za-z])JobID(Raw)?([^A-Za-z]|$)", line, re.IGNORECASE) is not None


def _never(_line: str) -> bool:
    return False


FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat("tiresias", "Tiresias' simulator: CSV with num_gpu, submit_time, duration",
           _header_with("num_gpu", "submit_time", "duration"), read_tiresias),
    TraceFormat("pollux", "Pollux' simulator: CSV with time, application, num_replicas, batch_size; needs --profiles",
           _header_with(*pollux.REQUIRED), pollux.read_pollux),
    TraceFormat("philly", "Microsoft's Philly: CSV with timestamp, duration, num_gpus", _header_with(*philly.REQUIRED),
           philly.read_philly),
    TraceFormat("gavel", "Gavel's simulator: 10 cells between tabs, no header; needs --pairs",
           looks_like_gavel, read_gavel),
    TraceFormat("sacct", "a site's accounting: sacct --parsable2, with its header",
           _looks_like_sacct, _read_sacct),
    TraceFormat("swf", "Standard Workload Format, processors as CPU cores", looks_like_swf, read_swf),
    TraceFormat("swf-gpu", "Standard Workload Format, processors as GPUs; say --format", _never, partial(read_swf, gpus=True)),
)  # fmt: skip


def format_names() -> tuple[str, ...]:
    """All names, in the order of :data:`FORMATS`."""
    return tuple(entry.name for entry in FORMATS)


def find_format(name: str) -> TraceFormat:
    """The format of a name.

    Raises:
        SimulatorError: no such format.
    """
    for entry in FORMATS:
        if entry.name == name:
            return entry
    raise SimulatorError(no_such("trace format", name, format_names()))


def detect_format(path: Path) -> TraceFormat:
    """The first format that a file looks like.

    Raises:
        TraceError: the file cannot be read, is a pipe, compressed or empty, or looks like none.
    """
    try:
        if path.is_fifo():
            names = ", ".join(format_names())
            raise TraceError(
                str(path), 0, f"a pipe can be read only once; say its format, --format with one of: {names}"
            )
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(str(path), 0, f"it cannot be read: {reason}") from None
    if is_compressed(head):
        raise TraceError(str(path), 0, COMPRESSED)
    lines = with_newlines(head).decode("utf-8-sig", errors="replace").split("\n")
    first = next((line.removesuffix("\r") for line in lines if line.strip()), None)
    if first is None:
        raise TraceError(str(path), 0, "it is empty")
    for entry in FORMATS:
        if entry.looks_right(first):
            return entry
    known = "; ".join(f"{entry.name} ({entry.summary})" for entry in FORMATS)
    raise TraceError(
        str(path), 0, f"it looks like no known format, its first line is {shorten(first)!r}; say --format: {known}"
    )


def load_trace(
    path: Path,
    format: str | None = None,  # noqa: A002 - the command line's word
    *,
    lenient: bool = False,
    profiles: MeasuredTimes | None = None,
) -> JobTrace:
    """Read a trace.

    Args:
        path: the file.
        format: a name of :data:`FORMATS`; by default what the file looks like.
        lenient: skip and list what cannot be used, instead of ending at the first such line.
        profiles: measured tables, for formats without run times.

    Raises:
        SimulatorError: no such format.
        TraceError: the file cannot be used.
    """
    entry = find_format(format) if format is not None else detect_format(path)
    return entry.read(path, lenient=lenient, profiles=profiles)

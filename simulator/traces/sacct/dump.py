"""A site's own accounting: the output of ``sacct --parsable2``, of Slurm 22.05 to 26.05, any columns in any order.

How states, requeues, arrays, heterogeneous jobs and odd records are read is in docs/whatif.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.traces.parsing.text_lines import COMPRESSED, is_compressed
from slurm_soda.simulator.traces.sacct import site_jobs
from slurm_soda.simulator.traces.sacct.columns import SACCT_COMMAND, SacctHeader
from slurm_soda.simulator.traces.sacct.rows import SacctRow, SacctRowReader
from slurm_soda.simulator.traces.sacct.site_jobs import SacctJob, group_rows_by_job
from slurm_soda.simulator.traces.trace import JobTrace, SkippedEntry
from slurm_soda.simulator.workload import Workload
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.hints.codec import decode_comment
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.hostlist import expand_hosts

SACCT_FORMAT = "sacct"
_SHOWN = 200
_UTF16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")
"""How a file begins that PowerShell's > wrote, where its bytes that are no UTF-8 were escaped."""


@dataclass(frozen=True, slots=True)
class SacctRun:
    """One run at the site, on the clock of the workload. Resources are over all nodes."""

    job: int
    """Row of the workload; -1: of a job that is not simulated."""
    ready_s: float
    """When it began to wait: submission or eligibility, of this run and not of the job."""
    start_s: float
    end_s: float
    """Infinite: it had not ended."""
    state: str
    nodes: tuple[str, ...]
    """Empty where the dump does not say."""
    gpus: int
    gpu_type: str
    cpus: int
    memory_mib: int
    partition: str


@dataclass(frozen=True, slots=True)
class SacctDump:
    """What a dump of sacct says."""

    trace: JobTrace
    runs: tuple[SacctRun, ...]
    """Every run of every job, by start (ties: as in the dump)."""
    notes: tuple[str, ...]
    """What was taken for granted, one line each."""


def read_sacct(path: Path, lenient: bool) -> JobTrace:
    """The jobs of a dump.

    Args:
        path: output of ``sacct --parsable2`` with its header line.
        lenient: leave records out that cannot be read, instead of raising at the first one.

    Raises:
        TraceError: no such file, a column that is needed is missing, a record cannot be read, or no job is left.
    """
    return read_sacct_dump(path, lenient).trace


def read_sacct_dump(path: Path, lenient: bool) -> SacctDump:
    """The jobs of a dump with all their runs; see :func:`read_sacct`."""
    reading = _Reading(path, lenient)
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            header, reader = reading.header(lines)
            rows = list(reading.rows(header, reader, lines))
    except OSError as error:
        raise TraceError(str(path), 0, f"cannot be read: {error.strerror or error}") from error
    counts = reading.counts
    jobs, counts[site_jobs.REPEATED] = group_rows_by_job(rows)
    used = []
    for job in jobs:
        if reason := job.unused:
            counts[reason] += job.rows[-1].id.tasks
        else:
            used.append(job)
    if not used:
        found = _listed(counts, reading.skipped)
        raise TraceError(str(path), 0, f"no job in it can be simulated ({found}); {_remedy(rows)}")
    used.sort(key=lambda job: job.submit_s)
    return _dump(reading, used, jobs, reader)


class _Reading:
    """What is found while one file is read.

    Attributes:
        skipped: records left out, where that is allowed.
        counts: records that are no jobs to simulate, by kind.
    """

    def __init__(self, path: Path, lenient: bool) -> None:
        self.path, self._lenient = path, lenient
        self.skipped: list[SkippedEntry] = []
        self.counts: Counter[str] = Counter()
        self._line = 0
        """Of the header."""

    def header(self, lines: Iterable[str]) -> tuple[SacctHeader, SacctRowReader]:
        """Read up to the header, the first line that is not blank.

        Raises:
            TraceError: there is none, or a column is missing; a column is unknown, unless that is allowed.
        """
        line = ""
        for self._line, line in enumerate(lines, start=1):
            if line.strip("\ufeff \r\n"):
                break
        if not line.strip("\ufeff \r\n"):
            raise TraceError(str(self.path), 0, f"is empty; make the dump with: {SACCT_COMMAND}")
        if is_compressed(line[:8].encode("utf-8", "surrogateescape")):
            raise TraceError(str(self.path), 0, COMPRESSED)
        if line.startswith(_UTF16_MARKS):
            raise TraceError(str(self.path), 0, "is in UTF-16; save it as UTF-8, with: iconv -f UTF-16 -t UTF-8")
        try:
            header = SacctHeader(line.removeprefix("\ufeff").rstrip("\r\n"))
            reader = SacctRowReader(header)
        except ValueError as error:
            raise TraceError(str(self.path), self._line, str(error)) from None
        for name in header.unknown():
            self._leave_out(
                self._line, f"{name[:40]!r} is no column of sacct; known are those of sacct --helpformat", name
            )
        return header, reader

    def rows(self, header: SacctHeader, reader: SacctRowReader, lines: Iterable[str]) -> Iterator[SacctRow]:
        """Read the records; steps are counted.

        Raises:
            TraceError: one cannot be read, unless that is allowed.
        """
        cluster: str | None = None
        for record in header.records(lines, self._line + 1):
            if record.problem:
                self._leave_out(record.line, record.problem, "|".join(record.cells))
                continue
            try:
                row = reader.read(record.line, record.cells)
            except (ValueError, OverflowError, SlurmReplyError) as error:
                self._leave_out(record.line, str(error), "|".join(record.cells))
                continue
            if row is None:
                self.counts[site_jobs.JOB_STEPS] += 1
                continue
            cluster = row.cluster if cluster is None else cluster
            if row.cluster == cluster:
                yield row
            else:
                what = f"job {row.id.text} is of cluster {row.cluster!r}, those before it of {cluster!r}"
                self._leave_out(record.line, f"{what}; run sacct with --clusters={cluster}", row.cluster)

    def _leave_out(self, line: int, reason: str, value: str) -> None:
        if not self._lenient:
            raise TraceError(str(self.path), line, f"{reason}; correct it, or leave such lines out with --lenient")
        self.skipped.append(SkippedEntry(line, reason, value[:_SHOWN]))


def _listed(counts: Counter[str], skipped: Sequence[SkippedEntry]) -> str:
    found = [f"{count} {name}" for name, count in counts.items() if count]
    found += [f"{len(skipped)} unreadable"] if skipped else []
    return ", ".join(found) or "it has a header and nothing else"


def _remedy(rows: Sequence[SacctRow]) -> str:
    return "ask sacct for a longer time with --starttime" if rows else f"make the dump with: {SACCT_COMMAND}"


def _dump(reading: _Reading, used: Sequence[SacctJob], jobs: Sequence[SacctJob], reader: SacctRowReader) -> SacctDump:
    origin_s = used[0].submit_s
    hints = [decode_comment(job.rows[0].comment).hints for job in used]
    tagged = any(hint != Hints() for hint in hints)
    workload = Workload.build(
        reading.path.name,
        [_job_row(job, hint, origin_s, tagged) for job, hint in zip(used, hints, strict=True)],
        origin_s=origin_s,
    )
    trace = JobTrace(
        workload=workload,
        format=SACCT_FORMAT,
        skipped=tuple(reading.skipped),
        unused=MappingProxyType({name: count for name, count in reading.counts.items() if count}),
        line=np.array([job.rows[0].line for job in used], dtype=np.int64),
        observed_start_s=np.array([job.start_s - origin_s for job in used], dtype=np.float64),
        observed_end_s=np.array([job.end_s - origin_s for job in used], dtype=np.float64),
    )
    return SacctDump(trace, _runs(used, jobs, origin_s), tuple(_notes(used, tagged, reader)))


def _job_row(job: SacctJob, hints: Hints, origin_s: float, tagged: bool) -> dict[str, Any]:
    """One row of the workload.

    What a job held is what it asks for. Its GPUs are split over its nodes as evenly as they were, if they were: Slurm
    counts them by node unless somebody used --gpus. Of a heterogeneous job the components with GPUs are one gang.
    """
    last = [part.runs[-1] for part in job.parts]
    last = [row for row in last if row.gpus] or last
    gpus, least_nodes = sum(row.gpus for row in last), sum(row.least_nodes for row in last)
    each = {row.gpus / row.nodes if row.least_nodes == row.nodes else 0.5 for row in last}
    split = each.pop() if len(each) == 1 else 0.0
    types = {row.gpu_type for row in last}
    return {
        "label": job.label,
        "submit_s": job.submit_s - origin_s,
        "run_s": job.ran_s,
        "gpus": gpus,
        "nodes": least_nodes,
        "gpus_per_node": int(split) if gpus and split.is_integer() else 0,
        "gpu_type": types.pop() if len(types) == 1 else "",
        "cpus": sum(row.cpus for row in last),
        "memory_mib": sum(row.memory_mib for row in last),
        "time_limit_s": last[0].limit_s,
        "preemptible": hints.preemptible or not tagged,
        "user": last[0].user,
        "partition": last[0].partition,
        "qos": last[0].qos,
        "model": hints.model or "",
        "category": hints.category or "",
        "batch_size": hints.batch_size or 0,
        "iterations": float(hints.iterations or 0),
        "shares": hints.share is not False,
        "max_slowdown": hints.max_slowdown or math.inf,
    }


def _runs(used: Sequence[SacctJob], jobs: Sequence[SacctJob], origin_s: float) -> tuple[SacctRun, ...]:
    number = {job.rows[0].line: at for at, job in enumerate(used)}
    runs = [
        SacctRun(
            job=number.get(job.rows[0].line, -1),
            ready_s=max(row.submit_s, row.ready_s) - origin_s,
            start_s=row.start_s - origin_s,
            end_s=math.inf if math.isnan(row.end_s) else row.end_s - origin_s,
            state=row.state,
            nodes=_node_names(row.node_list),
            gpus=row.gpus,
            gpu_type=row.got_gpu_type,
            cpus=row.cpus,
            memory_mib=row.memory_mib,
            partition=row.partition,
        )
        for job in jobs
        for part in job.parts
        for row in part.runs
    ]
    return tuple(sorted(runs, key=lambda run: run.start_s))


def _node_names(text: str) -> tuple[str, ...]:
    """Nodes of a run; none where the list cannot be read, because only a default cluster depends on them."""
    try:
        return expand_hosts(text)
    except SlurmReplyError:
        return ()


def _notes(used: Sequence[SacctJob], tagged: bool, reader: SacctRowReader) -> Iterator[str]:
    late = sum(job.rows[0].ready_s > job.rows[0].submit_s for job in used)
    if late:
        yield f"{late} jobs became eligible after their submission (dependency, begin time, hold) and count from then"
    early = sum(row.start_s < row.submit_s for job in used for row in job.rows[:1])
    if early:
        yield f"{early} jobs started before their submission, says Slurm; they count from their start"
    cut = sum(job.rows[0].restarts > 0 for job in used)
    if cut:
        yield f"{cut} jobs had been requeued before their first record here; run sacct with --duplicates to count these runs"
    lists = Counter(row.node_list for job in used for part in job.parts for row in part.runs)
    if damaged := [text for text in lists if text not in ("", "None assigned") and not _node_names(text)]:
        yield (
            f"{sum(lists[text] for text in damaged)} runs have a NodeList that cannot be read, such as {damaged[0][:40]!r}:"
            " they show no node"
        )
    if halves := sum(len({bool(part.runs[-1].gpus) for part in job.parts}) > 1 for job in used):
        yield f"{halves} heterogeneous jobs are simulated without their components that have no GPU"
    if not tagged:
        yield "no job says whether it can checkpoint: all of them are taken to be, unless --can-checkpoint says how many are"
    if not reader.has("alloctres", "reqtres", "allocgres", "reqgres"):
        yield "the dump says nothing about GPUs: every job counts as a CPU job; add AllocTRES to sacct's format"

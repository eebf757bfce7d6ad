"""Two jobs on one GPU, for people."""

from __future__ import annotations

from collections.abc import Callable

from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document

_RUN_TIME_SOURCE_TEXTS = {
    "progress": "by its own progress",
    "iterations": "by iterations",
    "history": "by like jobs",
    "limit": "by time limit",
}


def print_pair(document: Document) -> None:
    """A table with a column for each job, then what follows from it."""
    for line in document["warnings"]:
        output.warn(line)
    one, other = document["jobs"]
    where = f" of type {document['gpu_type']}" if document["gpu_type"] else ""
    output.print_line(f"Job {one['job_id']} with job {other['job_id']} on one GPU{where}")
    columns = [Column(""), *(Column(f"job {job['job_id']}") for job in (one, other))]
    output.print_table(columns, [(name, cell(one), cell(other)) for name, cell in _ROWS])
    output.print_line()
    output.print_lines(document["reasons"])
    if document["regardless"]:
        _arithmetic("If both owners allowed it", document["new"], document["regardless_arithmetic"])
        if document["decision"]["chosen_sub_batch"] is None:
            output.print_line("As they allow it: one after the other.")
        else:
            _arithmetic("As they allow it", document["new"], document["arithmetic"])
    elif document["decision"]:
        _arithmetic("The arithmetic", document["new"], document["arithmetic"])


def _arithmetic(title: str, new: int, lines: list[str]) -> None:
    output.print_line(f'{title} ("it" is job {new}):')
    output.print_lines(lines, indent=2)


def _job_kind_text(job: Document) -> str:
    return f"{job['model']}, batch {job['batch'] or 'unknown'}"


def _state(job: Document) -> str:
    return f"{job['state']}, {job['gpus']} GPU{'s' if job['gpus'] > 1 else ''}, {job['name']} of {job['user']}"


def _run_time_left_text(job: Document) -> str:
    by = f", {_RUN_TIME_SOURCE_TEXTS.get(job['left_by'], job['left_by'])}"
    if job["left_basis"]:
        by += f": {job['left_basis']['jobs']} {job['left_basis']['basis']}"
    return _value_text(job["left_s"], output.format_duration, by)


def _value_text(told: Document | None, words: Callable[[float], str], more: str = "") -> str:
    if told is None:
        return "unknown"
    error = f" ± {words(told['error'])}" if told["error"] else ", error unknown" if told["error"] is None else ""
    return f"{words(told['value'])}{error} ({told['source']}{more})"


def _mib(value: float) -> str:
    return f"{value:,.0f} MiB"


def _factor(value: float) -> str:
    return f"{value:.2f}"


def _bounds(job: Document) -> str:
    share = {True: "yes", False: "no", None: "not said"}[job["share"]]
    return f"{share}, at most {job['max_slowdown']:g} times as long" if job["max_slowdown"] else share


_ROWS: tuple[tuple[str, Callable[[Document], str]], ...] = (
    ("kind", _job_kind_text),
    ("now", _state),
    ("an iteration alone", lambda job: _value_text(job["iteration_s"], output.format_duration)),
    ("work left, alone", _run_time_left_text),
    ("GPU memory", lambda job: _value_text(job["memory_mib"], _mib)),
    ("run time with the other", lambda job: _value_text(job["xi"], _factor)),
    ("its owner allows", _bounds),
)

"""What is known about kinds of jobs, as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slurm_soda.daemon.learning.quantities import QUANTITIES
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document

PrintDocument = Callable[[Document], None]

_RUN_TIME_SOURCE_TEXTS = {
    "progress": "by the job's own progress",
    "iterations": "by iterations and iteration time",
    "history": "by like jobs",
    "limit": "by time limit",
}


def print_values(document: Document) -> None:
    """Values, one a line."""
    rows: Sequence[Document] = document["values"]
    if not rows:
        output.print_line("nothing of that is known; jobs that name a --soda-model teach it when they end")
        return
    has_partner = any(row["with"] for row in rows)
    columns = [
        Column("model"),
        Column("batch", right=True),
        Column("GPU"),
        Column("GPUs", right=True),
        *([Column("with"), Column("batch", right=True)] if has_partner else []),
        Column("quantity"),
        Column("value", right=True),
        Column("error", right=True),
        Column("source"),
        Column("jobs", right=True),
        Column("since"),
        Column("from"),
    ]
    output.print_table(columns, [_cells(row, has_partner=has_partner) for row in rows])


def _cells(row: Document, *, has_partner: bool) -> list[str]:
    unit = QUANTITIES[row["quantity"]].unit if row["quantity"] in QUANTITIES else ""
    return [
        row["model"] or "any",
        _batch(row["batch"]),
        row["gpu_type"] or "any",
        str(row["gpus"]),
        *([row["with"], _batch(row["with_batch"])] if has_partner else []),
        row["quantity"],
        f"{row['value']:.4g} {unit}".rstrip(),
        _error(row["error"]),
        row["source"],
        str(row["observations"]) if row["observations"] else "-",
        output.format_instant(row["at_s"]),
        f"jobs of {row['owner']}" if row["owner"] else row["origin"],
    ]


def _batch(batch: int) -> str:
    return str(batch) if batch else "any"


def _error(error: float | None) -> str:
    return f"± {error:.2g}" if error is not None and error < float("inf") else "unknown"


def print_values_and_accuracy(document: Document) -> None:
    """Values, and how good predicted run times were."""
    print_values(document)
    if document["run_times"]:
        output.print_line()
        columns = [
            Column("run times predicted"),
            Column("jobs", right=True),
            Column("off by a factor of", right=True),
            Column("off on average", right=True),
        ]
        rows = [
            (
                _RUN_TIME_SOURCE_TEXTS.get(row["predicted_by"], row["predicted_by"]),
                str(row["jobs"]),
                f"{row['factor']:.2f}",
                output.format_duration(row["error_s"]),
            )
            for row in document["run_times"]
        ]
        output.print_table(columns, rows)


def print_edits(document: Document) -> None:
    """Changes by hand, newest first."""
    if not document["edits"]:
        output.print_line("nobody changed anything by hand")
        return
    columns = [Column("edit", right=True), Column("at"), Column("by"), Column("what"), Column("of"), Column("undone")]
    rows = [
        (
            str(row["edit"]),
            output.format_instant(row["at_s"]),
            row["by"],
            row["action"],
            row["summary"],
            output.format_instant(row["undone_s"]),
        )
        for row in document["edits"]
    ]
    output.print_table(columns, rows)

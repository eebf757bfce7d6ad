"""One line a job: the whole outcome as a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable

import numpy as np
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.outcome import Outcome
from slurm_soda.simulator.report.summary import jct_s, queue_s

COLUMNS = (
    "label",
    "user",
    "gpus",
    "cpus",
    "submit_s",
    "first_start_s",
    "end_s",
    "run_s",
    "jct_s",
    "queue_s",
    "held_s",
    "preemptions",
    "failures",
)
ON_NODES = ("cpus_given", "core_steps")
"""Columns more where nodes have a part in speed."""  # fmt: skip


def per_job_csv(outcome: Outcome) -> str:
    """The file's text, a line a job in the workload's order.

    Times are rounded to milliseconds and written with as few digits as say that (``60``, ``0.25``); ``submit_s``,
    ``first_start_s`` and ``end_s`` count from the trace's second 0; what never happened is empty. The same run gives the
    same bytes. Where nodes have a part in speed there are also the cores that the job had last, and the steps of the
    search that found them (empty: no search ended).
    """
    workload = outcome.workload
    users = workload.users
    columns: tuple[Iterable[object], ...] = (
        workload.label,
        [users[code] if code >= 0 else "" for code in workload.user.tolist()],
        workload.gpus.tolist(),
        workload.cpus.tolist(),
        _seconds(workload.submit_s),
        _seconds(outcome.first_start_s),
        _seconds(outcome.end_s),
        _seconds(workload.run_s),
        _seconds(jct_s(outcome)),
        _seconds(queue_s(outcome)),
        _seconds(outcome.held_s),
        outcome.preemptions.tolist(),
        outcome.failures.tolist(),
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if outcome.on_nodes is not None:
        columns = (*columns, _known(outcome.on_nodes.cpus), _known(outcome.on_nodes.steps))
    writer.writerow(COLUMNS if outcome.on_nodes is None else (*COLUMNS, *ON_NODES))
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _known(column: IntColumn) -> list[object]:
    return [value if value >= 0 else "" for value in column.tolist()]


def _seconds(column: FloatColumn) -> list[str]:
    # Adding 0 turns -0.0 into 0.0.
    return [_text(value) for value in (np.round(column, 3) + 0.0).tolist()]


def _text(value: float) -> str:
    if math.isnan(value):
        return ""
    return repr(int(value)) if value.is_integer() else repr(value)

"""One line a job: the whole outcome as a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.summary import jct_s, queue_s

PER_JOB_COLUMNS = (
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
NODE_COLUMNS = ("cpus_given", "core_steps")
"""Columns more where nodes have a part in speed."""
SHARING_COLUMNS = ("shared_s", "xi", "partners", "sub_batch", "out_of_memory")
"""Columns more where jobs could share GPUs."""


def per_job_csv(outcome: SimulationOutcome) -> str:
    """The file's text, a line a job in the workload's order.

    Times are rounded to milliseconds and written with as few digits as say that (``60``, ``0.25``); ``submit_s``,
    ``first_start_s`` and ``end_s`` count from the trace's second 0; what never happened is empty. The same run gives the
    same bytes. Where nodes have a part in speed there are also the cores that the job had last, and the steps of the
    search that found them (empty: no search ended). Where jobs could share GPUs there are also the time that the job had
    partners, its mean slowdown by them (empty: none), how many different ones, the sub-batch of its last run (0: it did
    not accumulate), and how often it did not fit.
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
    names: tuple[str, ...] = PER_JOB_COLUMNS
    if outcome.node_measurements is not None:
        names = (*names, *NODE_COLUMNS)
        columns = (*columns, _known(outcome.node_measurements.cpus), _known(outcome.node_measurements.steps))
    if outcome.sharing is not None:
        names, seen = (*names, *SHARING_COLUMNS), outcome.sharing
        counts = [column.tolist() for column in (seen.partners, seen.sub_batch, seen.out_of_memory)]
        columns = (*columns, _seconds(seen.shared_s), _seconds(seen.xi), *counts)
    writer.writerow(names)
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

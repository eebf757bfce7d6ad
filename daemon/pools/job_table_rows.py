"""Parts of a job table."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import IntColumn, JobTable

_COLUMNS_NOT_PER_JOB = frozenset(
    {"alloc_start", "alloc_node", "alloc_gpus", "alloc_cpus", "users", "partitions", "gpu_types"}
)


def select_rows(jobs: JobTable, rows: IntColumn) -> JobTable:
    """The table of some of its rows, which come in ascending order."""
    columns: dict[str, Any] = {}
    for spec in fields(JobTable):
        column = getattr(jobs, spec.name)
        if spec.name not in _COLUMNS_NOT_PER_JOB:
            columns[spec.name] = column[rows] if len(column) else column
    counts = np.diff(jobs.alloc_start)[rows]
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    entries = np.repeat(jobs.alloc_start[:-1][rows] - starts[:-1], counts) + np.arange(starts[-1])
    return jobs.with_columns(
        **columns,
        alloc_start=starts,
        alloc_node=jobs.alloc_node[entries],
        alloc_gpus=jobs.alloc_gpus[entries],
        alloc_cpus=jobs.alloc_cpus[entries],
    )

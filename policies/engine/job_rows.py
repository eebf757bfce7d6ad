"""A table of jobs from one dictionary a job: for tests and small inputs, not for the hot path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import NEVER, UNLIMITED_S, JobState, JobTable

_DEFAULTS: Mapping[str, Any] = {
    "state": JobState.PENDING,
    "user": "user",
    "partition": "main",
    "submit_s": 0.0,
    "first_start_s": NEVER,
    "start_s": NEVER,
    "time_limit_s": UNLIMITED_S,
    "gpus": 1,
    "nodes": 1,
    "gpus_per_node": 0,
    "gpu_type": "",
    "cpus": 1,
    "memory_mib": 0,
    "priority": 0,
    "site_factor": 0,
    "executed_s": 0.0,
    "attained_gpu_s": 0.0,
    "waited_s": 0.0,
    "preemptible": False,
    "preemptions": 0,
    "remaining_s": NEVER,
    "skew": NEVER,
    "nice": 0,
    "queued_s": NEVER,
    "id_place": 0,
    "may_preempt": True,
    "band": 0,
    "may_start": True,
    "overdue": False,
    "node_set": -1,
    "unknown_nodes": 0,
    "whole_nodes": False,
    "least_cpus": 0,
    "left_out": 0,
    "alloc": (),
}
_NAMES = ("users", "partitions", "gpu_types")
_FLOATS = frozenset(name for name, value in _DEFAULTS.items() if isinstance(value, float))
_FLAGS = frozenset(name for name, value in _DEFAULTS.items() if isinstance(value, bool))
_DTYPES: Mapping[str, type] = {
    "state": np.int8,
    **dict.fromkeys(_FLAGS, np.bool_),
    **dict.fromkeys(_FLOATS, np.float64),
}
"""Of all columns that are not whole numbers."""


def build_job_table(rows: Sequence[Mapping[str, Any]]) -> JobTable:
    """Build a table from one dictionary a job.

    Keys are the column names, with ``user``, ``partition`` and ``gpu_type`` as strings, and ``alloc`` as a list of
    ``(node row, gpus, cpus)``. Only ``job_id`` is required: the rest defaults to a pending one-GPU, one-CPU job
    submitted at 0 that cannot be preempted and was never requeued.

    Raises:
        TypeError: a key that is not a column.
    """
    for row in rows:
        if unknown := set(row) - set(_DEFAULTS) - {"job_id"}:
            raise TypeError(f"job row has unknown keys {sorted(unknown)}; known are {sorted(_DEFAULTS)}")
    full = sorted(({**_DEFAULTS, **row} for row in rows), key=lambda r: int(r["job_id"]))
    full = [{**r, "queued_s": r["submit_s"]} if math.isnan(r["queued_s"]) else r for r in full]
    users = tuple(sorted({r["user"] for r in full}))
    partitions = tuple(sorted({r["partition"] for r in full}))
    types = tuple(sorted({r["gpu_type"] for r in full if r["gpu_type"]}))
    allocs = [r["alloc"] for r in full]
    flat = [entry for alloc in allocs for entry in alloc]
    coded = {
        "user": [users.index(r["user"]) for r in full],
        "partition": [partitions.index(r["partition"]) for r in full],
        "gpu_type": [types.index(r["gpu_type"]) if r["gpu_type"] else -1 for r in full],
    }
    columns: dict[str, Any] = {}
    for spec in fields(JobTable):
        if not spec.name.startswith("alloc_") and spec.name not in _NAMES:
            values = coded.get(spec.name, [r[spec.name] for r in full])
            columns[spec.name] = np.array(values, dtype=_DTYPES.get(spec.name, np.int64))
    return JobTable(
        **columns,
        alloc_start=np.concatenate(([0], np.cumsum([len(a) for a in allocs]))).astype(np.int64),
        alloc_node=np.array([e[0] for e in flat], dtype=np.int64),
        alloc_gpus=np.array([e[1] for e in flat], dtype=np.int64),
        alloc_cpus=np.array([e[2] for e in flat], dtype=np.int64),
        users=users,
        partitions=partitions,
        gpu_types=types,
    )

"""A workload from whole columns: sorted, coded, and with defaults for what a trace does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import BoolColumn, IntColumn
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.workload import Workload

_NUMBERS: Mapping[str, tuple[type, float]] = MappingProxyType({
    "gpus": (np.int64, 1), "nodes": (np.int64, 1), "gpus_per_node": (np.int64, 0), "cpus": (np.int64, 0),
    "memory_mib": (np.int64, 0), "batch_size": (np.int64, 0), "time_limit_s": (np.float64, math.inf),
    "restart_s": (np.float64, 0.0), "saves_every_s": (np.float64, 0.0), "iterations": (np.float64, 0.0),
    "preemptible": (np.bool_, True), "shares": (np.bool_, True), "max_slowdown": (np.float64, math.inf),
})  # fmt: skip
_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "user": ("users", "user"), "partition": ("partitions", "main"), "gpu_type": ("gpu_types", ""),
    "model": ("models", ""), "category": ("categories", ""), "qos": ("qos_names", ""),
})  # fmt: skip


def assemble_workload(
    name: str,
    *,
    submit_s: NDArray[Any],
    run_s: NDArray[Any],
    label: Sequence[str] | None = None,
    expected_s: NDArray[Any] | None = None,
    origin_s: float = 0.0,
    **columns: Any,
) -> tuple[Workload, IntColumn]:
    """A workload, sorted by ``submit_s`` (ties: the order given), and where each of its rows was in the columns given.

    O(n log n), and O(n) where the jobs are in order already. The defaults are those of ``JobKind.build``.

    Args:
        name: of the workload.
        submit_s: one number a job.
        run_s: one number a job.
        label: by default the number of the job in the order given, 1 first.
        expected_s: by default the true run time.
        origin_s: Unix time of second 0.
        columns: other columns by their names in the workload; coded ones as one text a job, empty for unknown.

    Raises:
        TypeError: no such column.
    """
    if unknown := set(columns) - set(_NUMBERS) - set(_NAMES):
        raise TypeError(f"a workload has no columns {sorted(unknown)}")
    jobs = len(submit_s)
    label = label or [str(number) for number in range(1, jobs + 1)]
    order = np.arange(jobs, dtype=np.int64)
    if jobs and (np.diff(submit_s) < 0).any():
        order = np.argsort(submit_s, kind="stable").astype(np.int64)
        label = [label[at] for at in order.tolist()]
    run_s = np.asarray(run_s, dtype=np.float64)[order]
    made: dict[str, Any] = {
        key: np.asarray(columns[key]).astype(kind)[order] if key in columns else np.full(jobs, default, dtype=kind)
        for key, (kind, default) in _NUMBERS.items()
    }
    for key, (plural, default) in _NAMES.items():
        texts = columns.get(key)
        made[key], made[plural] = encode_texts(texts, order) if texts is not None else repeat_text(default, jobs)
    workload = Workload(
        name=name,
        label=tuple(label),
        submit_s=np.asarray(submit_s, dtype=np.float64)[order],
        run_s=run_s,
        expected_s=run_s if expected_s is None else np.asarray(expected_s, dtype=np.float64)[order],
        origin_s=origin_s,
        **made,
    )
    return workload, order


def make_trace(
    format_name: str,
    name: str,
    lines: Sequence[int],
    columns: Mapping[str, Any],
    faults: TraceFaults,
    *,
    origin_s: float = 0.0,
    unused: Mapping[str, int] = MappingProxyType({}),
) -> JobTrace:
    """The trace of a reader's columns (see :func:`assemble_workload`) without the jobs whose lines have faults.

    Columns ``observed_start_s`` and ``observed_end_s`` become those of the trace.

    Raises:
        TraceError: reading is strict and there are faults, or no job is left.
    """
    faults.settle()
    sound = faults.sound(lines)
    if not sound.any():
        faults.no_jobs(unused)
    kept = columns if sound.all() else {key: _kept(column, sound) for key, column in columns.items()}
    plain = {key: column for key, column in kept.items() if not key.startswith("observed_")}
    workload, order = assemble_workload(name, origin_s=origin_s, **plain)
    observed = {key: column[order] for key, column in kept.items() if key.startswith("observed_")}
    line = np.asarray(lines, dtype=np.int64)[sound][order]
    return JobTrace(workload, format_name, skipped=faults.skipped(), unused=unused, line=line, **observed)


def distinct_names(column: str, names: Sequence[str], lines: Sequence[int], faults: TraceFaults) -> Sequence[str]:
    """Names of jobs; an empty one and one that an earlier line has are faults of their lines."""
    if len(set(names)) == len(names) and "" not in names:
        return names
    first: dict[str, int] = {}
    for name, line in zip(names, lines, strict=True):
        if not name:
            faults.row(line, f"{column} must name the job", name)
        elif name in first:
            faults.row(line, f"{column} must be unlike that of line {first[name]}", name)
        first.setdefault(name, line)
    return names


def _kept(column: Any, sound: BoolColumn) -> Any:
    if isinstance(column, np.ndarray):
        return column[sound]
    return [column[at] for at in np.flatnonzero(sound).tolist()]


def encode_texts(texts: Sequence[str], order: IntColumn) -> tuple[IntColumn, tuple[str, ...]]:
    """Texts as indices into their sorted distinct values, -1 for the empty one, in another order."""
    names = sorted(set(texts) - {""})
    number = {name: at for at, name in enumerate(names)} | {"": -1}
    codes = np.fromiter(map(number.__getitem__, texts), dtype=np.int64, count=len(texts))
    return codes[order], tuple(names)


def repeat_text(text: str, jobs: int) -> tuple[IntColumn, tuple[str, ...]]:
    """One text for every job, as :func:`encode_texts` gives texts."""
    return np.full(jobs, 0 if text else -1, dtype=np.int64), (text,) if text else ()

"""Workloads written down as CSV that every simulator of the Tiresias family reads, and ours without loss."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.formats.tiresias import NUMBERS, TEXTS
from slurm_soda.simulator.workload import Workload

_UNSAID = {
    "batch_size": 0,
    "nodes": 1,
    "gpus_per_node": 0,
    "cpus": 0,
    "memory_mib": 0,
    "time_limit_s": np.inf,
    "restart_s": 0.0,
    "saves_every_s": 0.0,
    "preemptible": True,
    "shares": True,
    "max_slowdown": np.inf,
}
_PLURALS = {
    "user": "users",
    "partition": "partitions",
    "gpu_type": "gpu_types",
    "category": "categories",
    "qos": "qos_names",
}
_UNSAID_TEXTS = {"user": ("user",), "partition": ("main",), "gpu_type": (), "category": (), "qos": ()}


def write_tiresias_csv(workload: Workload, path: Path) -> None:
    """Write Tiresias' columns, and a further column wherever a job differs from what its absence means.

    :func:`~slurm_soda.simulator.traces.registry.load_trace` gives the same jobs back, to the bit; the workload's name
    becomes that of the file, and its Unix time of second 0 is lost.

    Raises:
        SimulatorError: a name holds what a line of CSV cannot carry, or the file cannot be written.
    """
    submit_s = workload.submit_s
    table: dict[str, Sequence[str]] = {
        "job_id": _checked("job_id", workload.label, path),
        "num_gpu": _texts(workload.gpus),
        "submit_time": _texts(submit_s),
        "iterations": _texts(workload.iterations),
        "model_name": _names("model", workload.model, workload.models, path),
        "duration": _texts(workload.run_s),
        "interval": _texts(np.append(np.diff(submit_s), 0.0)[: len(submit_s)]),
    }
    for name in NUMBERS:
        column = getattr(workload, name)
        if not _is_unsaid(workload, name):
            table[name] = _texts(column)
    for name in TEXTS:
        if getattr(workload, _PLURALS[name]) != _UNSAID_TEXTS[name]:
            table[name] = _names(name, getattr(workload, name), getattr(workload, _PLURALS[name]), path)
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
    except OSError as error:
        raise SimulatorError(f"{path}: it cannot be written: {error.strerror}") from None


def _is_unsaid(workload: Workload, name: str) -> bool:
    column = getattr(workload, name)
    if name == "iterations":
        return True  # among Tiresias' own columns
    if name == "expected_s":
        return bool((column == workload.run_s).all())
    return bool((column == _UNSAID[name]).all())


def _texts(column: IntColumn | FloatColumn) -> list[str]:
    """Numbers with all their digits; nothing for those that mean 'unknown' or 'no limit'."""
    if column.dtype != np.float64:
        return list(map(str, column.astype(np.int64).tolist()))
    return [repr(value).removesuffix(".0") if abs(value) < np.inf else "" for value in column.tolist()]


def _names(name: str, codes: IntColumn, names: tuple[str, ...], path: Path) -> list[str]:
    texts = [*_checked(name, names, path), ""]
    return [texts[code] for code in codes.tolist()]


def _checked(name: str, texts: Sequence[str], path: Path) -> Sequence[str]:
    for text in texts:
        if not text or text != text.strip() or set(text) & {"\n", "\r"}:
            raise SimulatorError(
                f"{path}: {name} {text!r} cannot be written: a name has no newline and no space around it"
            )
    return texts

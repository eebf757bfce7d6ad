"""What is simulated: jobs as columns, one row a job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn

_DEFAULTS: Mapping[str, Any] = MappingProxyType({
    "gpus": 1, "nodes": 1, "gpus_per_node": 0, "gpu_type": "", "cpus": 0, "memory_mib": 0, "time_limit_s": math.inf,
    "expected_s": None, "preemptible": True, "restart_s": 0.0, "saves_every_s": 0.0, "user": "user",
    "partition": "main", "model": "", "category": "", "qos": "", "batch_size": 0, "iterations": 0.0, "shares": True,
    "max_slowdown": math.inf,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs by submission: row ``i`` is job ``i + 1`` to every policy, and ties go to the smaller row.

    Coded columns (``user``, ``partition``, ``gpu_type``, ``model``, ``category``, ``qos``) are indices into the tuple of
    names of the same word in the plural, -1 where the trace says nothing.
    """

    name: str
    label: tuple[str, ...]
    """Name of each job in its trace, such as Slurm's ``4711_3``."""
    submit_s: FloatColumn
    """Seconds after :attr:`origin_s`, ascending."""
    run_s: FloatColumn
    """Run time, alone, on what the job asks for; above 0."""
    gpus: IntColumn
    """GPUs over all nodes; 0 for a CPU job."""
    nodes: IntColumn
    """Least number of nodes, at least 1."""
    gpus_per_node: IntColumn
    """Exact GPUs on every node; 0: any split over at least ``nodes`` nodes will do."""
    gpu_type: IntColumn
    cpus: IntColumn
    """CPU cores over all nodes; 0: none counted."""
    memory_mib: IntColumn
    """Memory over all nodes; 0: none counted."""
    time_limit_s: FloatColumn
    expected_s: FloatColumn
    """Run time that policies are told when the job is submitted; NaN: they are told nothing."""
    preemptible: BoolColumn
    restart_s: FloatColumn
    """Time that the job holds its resources without progress each time it starts again."""
    saves_every_s: FloatColumn
    """A job that can checkpoint saves its state each time that it has worked for so long, and not when it is preempted: what
    it did since is lost. 0: it saves its state when it is preempted."""
    user: IntColumn
    partition: IntColumn
    model: IntColumn
    category: IntColumn
    """Kind of training as SODA sorts it: cv, nlp, speech, other; and ``inference``."""
    qos: IntColumn
    """Slurm's quality of service; index into :attr:`qos_names`."""
    batch_size: IntColumn
    """0: unknown."""
    iterations: FloatColumn
    """0: unknown."""
    shares: BoolColumn
    """Whether the job may share its GPUs."""
    max_slowdown: FloatColumn
    """Largest slowdown by sharing that its owner accepts; infinite: any."""
    users: tuple[str, ...] = ("user",)
    partitions: tuple[str, ...] = ("main",)
    gpu_types: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    qos_names: tuple[str, ...] = ()
    origin_s: float = 0.0
    """Unix time of second 0; 0 where the trace has a clock of its own."""

    def __len__(self) -> int:
        return len(self.submit_s)

    @classmethod
    def build(cls, name: str, rows: Sequence[Mapping[str, Any]], *, origin_s: float = 0.0) -> Workload:
        """Jobs from one mapping each, in any order; sorted by ``submit_s``, equal ones in the order given.

        ``submit_s`` and ``run_s`` are required, ``label`` defaults to the number in the order given (1 first), coded
        columns take names. ``expected_s`` defaults to the true run time: policies that predict then know everything, as
        in the papers' simulations.

        Raises:
            TypeError: a key that is no column.
        """
        known = {*_DEFAULTS, "label", "submit_s", "run_s"}
        for row in rows:
            if unknown := set(row) - known:
                raise TypeError(f"job row has unknown keys {sorted(unknown)}; known are {sorted(known)}")
        order = sorted(range(len(rows)), key=lambda at: (float(rows[at]["submit_s"]), at))
        columns: dict[str, list[Any]] = {
            key: [rows[at].get(key, default) for at in order] for key, default in _DEFAULTS.items()
        }
        columns["submit_s"] = [rows[at]["submit_s"] for at in order]
        columns["run_s"] = [rows[at]["run_s"] for at in order]
        expected = zip(columns["expected_s"], columns["run_s"], strict=True)
        columns["expected_s"] = [run if told is None else told for told, run in expected]
        plain: dict[str, Any] = {
            key: np.array(values, dtype=_DTYPES.get(key, np.int64))
            for key, values in columns.items()
            if key not in _CODED
        }
        label = tuple(str(rows[at].get("label", at + 1)) for at in order)
        return cls(name=name, label=label, origin_s=origin_s, **_coded(columns), **plain)

    def select(self, rows: NDArray[Any]) -> Workload:
        """Some of the jobs, by ascending row numbers or by one flag a row."""
        kept = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        columns = {
            spec.name: getattr(self, spec.name)[kept]
            for spec in fields(self)
            if isinstance(getattr(self, spec.name), np.ndarray)
        }
        return replace(self, label=tuple(self.label[at] for at in kept.tolist()), **columns)

    def with_columns(self, **columns: Any) -> Workload:
        """The same jobs with some columns replaced."""
        return replace(self, **columns)


_DTYPES: Mapping[str, type] = MappingProxyType({
    **dict.fromkeys(("preemptible", "shares"), np.bool_),
    **dict.fromkeys(
        ("submit_s", "run_s", "time_limit_s", "expected_s", "restart_s", "saves_every_s", "iterations", "max_slowdown"),
        np.float64),
})  # fmt: skip
_CODED: Mapping[str, str] = MappingProxyType({
    "user": "users", "partition": "partitions", "gpu_type": "gpu_types", "model": "models", "category": "categories",
    "qos": "qos_names",
})  # fmt: skip


def _coded(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    coded: dict[str, Any] = {}
    for key, plural in _CODED.items():
        names = sorted({value for value in columns[key] if value})
        number = {name: at for at, name in enumerate(names)}
        coded[key] = np.array([number.get(value, -1) for value in columns[key]], dtype=np.int64)
        coded[plural] = tuple(names)
    return coded

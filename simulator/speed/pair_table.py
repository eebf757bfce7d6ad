"""Speed of jobs alone and of pairs that share GPUs, from a table in the format of Gavel's simulator.

The format is that of :mod:`slurm_soda.policies.sharing.prediction.speed_tables`. GPUs of the name
``X_unconsolidated`` are those
of ``X`` with gangs spread over nodes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable, parse_speed_table
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.small_files import read_small_file

SPREAD_SUFFIX = "_unconsolidated"


class PairTableKey(NamedTuple):
    """What a pair table knows jobs by."""

    model: str
    batch_size: int
    """0: the model's only one."""
    scale: int
    """GPUs."""

    def __str__(self) -> str:
        batch = f" (batch size {self.batch_size})" if self.batch_size else ""
        return f"('{self.model}{batch}', {self.scale})"


@dataclass(frozen=True, slots=True)
class GpuSpeeds:
    """What was measured on one kind of GPU, in steps per second."""

    alone: Mapping[PairTableKey, float]
    shared: Mapping[tuple[PairTableKey, PairTableKey], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class GpuStepTimes:
    """Times of steps on one kind of GPU, for traces that count their work in steps."""

    pairs: PairTable
    gpu: str

    def step_s(self, application: str, batch_size: int, gpus: int) -> float:
        """Time of one step, alone.

        Raises:
            SimulatorError: it was not measured, or does not fit.
        """
        return 1.0 / self.pairs.alone_steps_per_s(self.gpu, application, batch_size, gpus)


@dataclass(frozen=True, slots=True)
class PairTable:
    """Measured speeds by GPU."""

    path: str
    tables: Mapping[str, GpuSpeeds]

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs, in the file's order."""
        return tuple(self.tables)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of GPU, in the file's order: :attr:`gpus` without those for spread gangs."""
        return tuple(name for name in self.tables if not name.endswith(SPREAD_SUFFIX)) or self.gpus

    def fastest(self) -> str:
        """The kind of GPU on which most jobs run fastest alone; ties: the first in the file."""
        jobs = {job for kind in self.kinds for job in self.tables[kind].alone}
        best = Counter(max(self.kinds, key=lambda kind: self.tables[kind].alone.get(job, 0.0)) for job in jobs)
        return max(self.kinds, key=lambda kind: best[kind])

    def on(self, gpu: str) -> GpuStepTimes:
        """The table as one kind of GPU sees it.

        Raises:
            SimulatorError: no such GPU.
        """
        self._table(gpu)
        return GpuStepTimes(self, gpu)

    def alone_steps_per_s(self, gpu: str, model: str, batch_size: int, scale: int) -> float:
        """Speed of a job that shares with nobody; above 0.

        Raises:
            SimulatorError: it was not measured, or does not fit.
        """
        kind = PairTableKey(model, batch_size, scale)
        speed = self._table(gpu).alone.get(kind)
        if speed is None:
            raise SimulatorError(f"{self.path}: GPU {gpu} has no measurement of {kind}")
        if not speed:
            raise SimulatorError(f"{self.path}: {kind} does not fit on GPU {gpu} (0 steps per second)")
        return speed

    def spread_ratio(self, gpu: str, kind: PairTableKey) -> float:
        """Speed alone of a gang that is spread over nodes, relative to the same gang on as few nodes as possible.

        Raises:
            SimulatorError: one of both was not measured, or does not fit.
        """
        return self.alone_steps_per_s(gpu + SPREAD_SUFFIX, *kind) / self.alone_steps_per_s(gpu, *kind)

    def shared(self, gpu: str, a: PairTableKey, b: PairTableKey) -> tuple[float, float] | None:
        """Speeds of two jobs on the same GPUs, each relative to itself alone; ``None``: they do not fit together.

        Pairs that were never measured, such as those of unequal scale, count as not fitting.

        Raises:
            SimulatorError: one of the jobs was not measured alone, or does not fit even alone.
        """
        alone = self.alone_steps_per_s(gpu, *a), self.alone_steps_per_s(gpu, *b)
        shared = self._table(gpu).shared
        if (a, b) in shared:
            mine, its = shared[a, b]
        elif (b, a) in shared:
            its, mine = shared[b, a]
        else:
            return None
        return (mine / alone[0], its / alone[1]) if mine and its else None

    def _table(self, gpu: str) -> GpuSpeeds:
        try:
            return self.tables[gpu]
        except KeyError:
            raise SimulatorError(f"{self.path} has no GPU {gpu!r}; it has: {', '.join(self.tables)}") from None


def load_pairs(path: Path) -> PairTable:
    """Read a pair table.

    Raises:
        TraceError: it cannot be read, is no file, too large or no JSON, or has another form; faults of JSON come with
            their line.
    """
    return _decoded(str(path), read_small_file(path))


@lru_cache(maxsize=1)
def _decoded(path: str, text: str) -> PairTable:
    """Every run of a comparison asks for the same table, and a large one takes seconds to check."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(path, error.lineno, f"it must be JSON; at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(path, 0, f"it cannot be read: {error}") from None
    try:
        measured = parse_speed_table(data)
    except PolicyError as error:
        raise TraceError(path, 0, str(error)) from None
    return PairTable(path, MappingProxyType({gpu: _gpu_table(measured, gpu) for gpu in measured.gpu_types}))


def _gpu_table(measured: SpeedTable, gpu: str) -> GpuSpeeds:
    alone = {_kind(kind): speed for kind, speed in measured.alone.items() if kind.gpu_type == gpu}
    shared = {(_kind(a), _kind(b)): both for (a, b), both in measured.shared.items() if a.gpu_type == gpu}
    return GpuSpeeds(MappingProxyType(alone), MappingProxyType(shared))


def _kind(workload: JobKind) -> PairTableKey:
    return PairTableKey(workload.model, workload.batch, workload.gpus)

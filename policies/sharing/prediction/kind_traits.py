"""What a cluster can observe of each job alone, as numbers that a predictor of interference can learn from."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable
from slurm_soda.policies.snapshot import IntColumn

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]

SPREAD_SUFFIX = "_unconsolidated"
"""Gavel's suffix of GPU types with gangs spread over nodes."""
OWN_TRAITS = ("steps", "samples", "elasticity", "saturation", "gang", "spread")
_FAMILY = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class KindTraits:
    """Kinds of jobs on one GPU of one type, and what is known of each of them alone.

    Attributes:
        names: of the columns. ``steps``: steps/s here; ``samples``: samples/s here; ``elasticity``: by how many per cent
            a step is longer with 1 % more samples; ``saturation``: samples/s relative to the model's best batch;
            ``gang``: speed a GPU of two relative to one; ``spread``: the same gang over two nodes relative to one;
            ``on X``: steps/s on GPU type X relative to here. All but the elasticity are logarithms.
        values: a row a kind, NaN for what nobody measured.
    """

    kinds: tuple[JobKind, ...]
    names: tuple[str, ...]
    values: Matrix

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.kinds), len(self.names)):
            raise PolicyError(f"traits need {len(self.kinds)} rows of {len(self.names)}, not {self.values.shape}")

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(kind.model for kind in self.kinds)

    @property
    def log_batch(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Binary logarithms of the batches; 0 for a model's only one."""
        return np.log2(np.maximum([kind.batch for kind in self.kinds], 1)).astype(np.float64)

    def rows(self, chosen: Sequence[int] | IntColumn) -> KindTraits:
        """Some of the kinds."""
        rows = np.asarray(chosen, dtype=np.int64)
        return KindTraits(tuple(self.kinds[row] for row in rows.tolist()), self.names, self.values[rows])

    def of(self, kind: JobKind) -> KindTraits | None:
        """Of one kind, on one of its GPUs; of a batch that nobody measured, between those next to it.

        A batch beyond all measured ones has the traits of the last one. None for a model that is not here.
        """
        same = sorted((known.batch, row) for row, known in enumerate(self.kinds) if known.model == kind.model)
        if not same or kind.gpu_type != self.kinds[0].gpu_type:
            return None
        exact = [row for batch, row in same if batch == kind.batch]
        if exact:
            return self.rows(exact[:1])
        logs, order = np.log2([max(batch, 1) for batch, _ in same]), [row for _, row in same]
        at = math.log2(max(kind.batch, 1))
        values = [np.interp(at, logs, column) for column in self.values[order].T]
        return KindTraits((JobKind(kind.model, kind.batch, kind.gpu_type),), self.names, np.array([values]))


def derive_traits(table: SpeedTable, gpu_type: str) -> KindTraits:
    """Traits of all kinds that run on one GPU of a type, from speeds alone; no pair is looked at.

    Raises:
        PolicyError: nothing was measured on that type of GPU.
    """
    kinds = tuple(kind for kind in table.kinds(gpu_type) if table.alone[kind] > 0)
    if not kinds:
        known = ", ".join(table.gpu_types) or "none"
        raise PolicyError(f"no speed was measured on one GPU of type {gpu_type!r}; the table has: {known}")
    elsewhere = tuple(name for name in table.gpu_types if name != gpu_type and not name.endswith(SPREAD_SUFFIX))
    own = np.array([_own(table, kind) for kind in kinds])
    curve = np.array([_curve(table, kind) for kind in kinds])
    there = np.array([[_ratio(table, _on(kind, name), kind) for name in elsewhere] for kind in kinds])
    values = np.column_stack((own[:, :2], curve, own[:, 2:], there.reshape(len(kinds), len(elsewhere))))
    return KindTraits(kinds, (*OWN_TRAITS, *(f"on {name}" for name in elsewhere)), values)


def model_family(model: str) -> str:
    """The first word of a model's name, without what tells its sizes apart: ``ResNet`` of ``ResNet-50``."""
    match = _FAMILY.search(model)
    return match.group().lower() if match else model


def _on(kind: JobKind, gpu_type: str, gpus: int = 1) -> JobKind:
    return JobKind(kind.model, kind.batch, gpu_type, gpus)


def _ratio(table: SpeedTable, one: JobKind, other: JobKind) -> float:
    """Logarithm of the ratio of two speeds alone, NaN if one is unknown or 0."""
    speed, than = table.alone.get(one, 0.0), table.alone.get(other, 0.0)
    return math.log(speed / than) if speed and than else math.nan


def _own(table: SpeedTable, kind: JobKind) -> tuple[float, float, float, float]:
    steps, pair = math.log(table.alone[kind]), _on(kind, kind.gpu_type, 2)
    gang = _ratio(table, pair, kind) - math.log(2)
    spread = _ratio(table, _on(kind, kind.gpu_type + SPREAD_SUFFIX, 2), pair)
    return steps, steps + math.log(kind.batch) if kind.batch else math.nan, gang, spread


def _curve(table: SpeedTable, kind: JobKind) -> tuple[float, float]:
    """Elasticity and saturation, from the model's other batches; NaN where there are none, or its own is not known."""
    same = sorted(
        (other.batch, speed)
        for other, speed in table.alone.items()
        if (other.model, other.gpu_type, other.gpus) == (kind.model, kind.gpu_type, 1) and other.batch and speed
    )
    if len(same) < 2 or not kind.batch:
        return math.nan, math.nan
    batches, speeds = np.log([batch for batch, _ in same]), np.log([speed for _, speed in same])
    row = [batch for batch, _ in same].index(kind.batch)
    samples = speeds + batches
    return float(np.gradient(-speeds, batches)[row]), float(samples[row] - samples.max())

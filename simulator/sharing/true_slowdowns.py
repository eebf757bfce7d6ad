"""What jobs that share a GPU really do to each other in a simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np

from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, KindProfile, Source
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.speed.pair_table import GpuSpeeds, PairTable, PairTableKey

DOES_NOT_FIT = math.inf
"""The slowdown of jobs that do not fit onto one GPU together."""
MAX_SLOWDOWN = 1e9
"""More means nothing, and sums of such times are no numbers any more."""


class TrueSlowdowns(Protocol):
    """Moves the simulation; policies see it only if they are meant to."""

    @property
    def gpu_type(self) -> str:
        """Of all GPUs of the simulation, empty where it plays no part."""
        ...

    def batch(self, model: str, batch: int) -> int | None:
        """The batch per GPU as which such a job counts; None for a model that nobody measured."""
        ...

    def pair_xi(self, slowed: JobKind, other: JobKind) -> float:
        """Iteration time of one beside another on the same GPU over its time alone, at least 1; :data:`DOES_NOT_FIT`."""
        ...

    def throughput(self, kind: JobKind) -> Throughput | None:
        """Iteration times by batch and sub-batch, where they are known."""
        ...


@dataclass(frozen=True, slots=True)
class UniformSlowdown:
    """Every pair fits and slows each other down by the same factor: the sweep of SJF-BSBF, Figure 6(b)."""

    factor: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.factor <= MAX_SLOWDOWN:
            raise SimulatorError(f"a slowdown must be a number from 1 to {MAX_SLOWDOWN:g}, not {self.factor!r}")

    @property
    def gpu_type(self) -> str:
        return ""

    def batch(self, model: str, batch: int) -> int | None:
        del model
        return batch

    def pair_xi(self, slowed: JobKind, other: JobKind) -> float:
        del slowed, other
        return self.factor

    def throughput(self, kind: JobKind) -> Throughput | None:
        del kind
        return None


@dataclass(frozen=True, slots=True)
class MeasuredSlowdowns:
    """A pair table, on one kind of GPU.

    Gangs: the entry of both at the same scale where it was measured and fits (tables have 0 for those that nobody ran), else
    that of one GPU. Batches between measured ones: the nearest by ratio, the larger of equals. Speeds above those alone are
    noise: xi is at least 1.
    """

    table: PairTable
    gpu_type: str
    _batches: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    _pairs: dict[tuple[JobKind, JobKind], float] = field(default_factory=dict, repr=False, compare=False)
    _curves: dict[str, Throughput | None] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for kind, speed in self._gpu.alone.items():
            if kind.scale == 1 and speed:
                self._batches[kind.model] = tuple(sorted({*self._batches.get(kind.model, ()), kind.batch_size}))

    @property
    def _gpu(self) -> GpuSpeeds:
        return self.table.tables[self.gpu_type]

    @property
    def models(self) -> tuple[str, ...]:
        """Models that were measured on one GPU, in the file's order."""
        return tuple(self._batches)

    def batch(self, model: str, batch: int) -> int | None:
        known = self._batches.get(model)
        if known is None:
            return None
        if len(known) == 1 or batch <= 0:
            return known[0]
        return min(known, key=lambda one: (abs(math.log(max(one, 1) / batch)), -one))

    def pair_xi(self, slowed: JobKind, other: JobKind) -> float:
        found = self._pairs.get((slowed, other))
        if found is None:
            found = self._pairs[slowed, other] = self._pair(slowed, other)
        return found

    def _pair(self, slowed: JobKind, other: JobKind) -> float:
        scale = slowed.gpus if slowed.gpus == other.gpus else 1
        ratios = self._ratios(slowed, other, scale)
        if ratios is None and scale > 1:
            ratios = self._ratios(slowed, other, 1)
        return DOES_NOT_FIT if ratios is None else max(1.0 / ratios[0], 1.0)

    def _ratios(self, slowed: JobKind, other: JobKind, scale: int) -> tuple[float, float] | None:
        kinds = [self._kind(kind, scale) for kind in (slowed, other)]
        if not all(self._gpu.alone.get(kind) for kind in kinds):
            return None
        return self.table.shared(self.gpu_type, kinds[0], kinds[1])

    def _kind(self, kind: JobKind, scale: int) -> PairTableKey:
        batch = self.batch(kind.model, kind.batch)
        if batch is None:
            raise SimulatorError(f"{self.table.path} has no model {kind.model!r}; it has: {', '.join(self.models)}")
        return PairTableKey(kind.model, batch, scale)

    def throughput(self, kind: JobKind) -> Throughput | None:
        """A line through the model's times of one GPU; the exchange of gangs is not told apart in such a table."""
        if kind.model not in self._curves:
            self._curves[kind.model] = self._curve(kind.model)
        return self._curves[kind.model]

    def _curve(self, model: str) -> Throughput | None:
        batches = np.array([batch for batch in self._batches.get(model, ()) if batch > 0], dtype=np.float64)
        if len(batches) < 2:
            return None
        times_s = np.array([1.0 / self._gpu.alone[PairTableKey(model, int(batch), 1)] for batch in batches])
        # Relative errors: a small batch's time counts as much as a large one's.
        per_sample_s, fixed_s = np.polyfit(batches, times_s, 1, w=1.0 / times_s).tolist()
        if fixed_s < 0:
            return Throughput(0.0, float((1.0 / times_s * batches).sum() / ((batches / times_s) ** 2).sum()))
        if per_sample_s < 0:
            return Throughput(float((1.0 / times_s).sum() / (1.0 / times_s**2).sum()), 0.0)
        return Throughput(fixed_s, per_sample_s)


class PerfectKnowledge:
    """The truth as knowledge: what a policy knows that is told everything.

    Slowdowns by several partners add up; several fit together where each two of them do (a table of pairs says no more).
    """

    def __init__(self, truth: TrueSlowdowns) -> None:
        self._truth = truth

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        xi = 1.0 + sum(self._truth.pair_xi(slowed, other) - 1.0 for other in others)
        return Estimate(xi, 0.0, Source.IMPORTED) if xi < DOES_NOT_FIT else None

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        return all(self._truth.pair_xi(a, b) < DOES_NOT_FIT for a, b in combinations(together, 2))

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        return self.fits(together) is False

    def profile(self, kind: JobKind) -> KindProfile | None:
        del kind
        return None

    def throughput(self, kind: JobKind) -> Throughput | None:
        return self._truth.throughput(kind)

    def footprint(self, kind: JobKind) -> Footprint | None:
        del kind
        return None

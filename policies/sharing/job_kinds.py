"""What is known about jobs, and how sure it is: every value says where it came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.identifiers import GpuTypeName, ModelName


class Source(IntEnum):
    """Where a value came from, the most trusted first."""

    SET = -1
    """An admin said so."""
    MEASURED = 0
    """Measured at this site."""
    IMPORTED = 1
    """Measured elsewhere, from a table."""
    PREDICTED = 2
    """Computed by a model."""
    PRIOR = 3
    """Assumed, as nobody knows better; chosen so that being wrong costs little."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, how far off it may be, and who says so.

    Attributes:
        value: in the unit of whatever is estimated.
        error: expected absolute error, in the same unit; infinite where nobody can tell.
        source: where it came from.

    Raises:
        PolicyError: the value is not a number, or the error negative or not a number.
    """

    value: float
    error: float
    source: Source

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise PolicyError(f"an estimate must be a finite number, not {self.value!r}: leave unknown values out")
        if not self.error >= 0:
            raise PolicyError(f"the error of an estimate must be 0 or more, not {self.error!r}")

    def plus_errors(self, errors: float) -> float:
        """The value made worse, that is larger, by so many errors."""
        return self.value + errors * self.error if errors else self.value


def most_trusted(estimates: Iterable[Estimate | None]) -> Estimate | None:
    """The estimate of the best source; of one source the most exact, then the first. None where all are None."""
    known = [estimate for estimate in estimates if estimate is not None]
    return min(known, key=lambda estimate: (estimate.source, estimate.error)) if known else None


@dataclass(frozen=True, slots=True)
class JobKind:
    """What jobs must have in common for a measurement of one to speak of the other."""

    model: ModelName
    batch: int
    """Per GPU and forward pass: the sub-batch where gradients are accumulated."""
    gpu_type: GpuTypeName
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class KindProfile:
    """What one workload does to one GPU when it is alone there; None for what is unknown.

    Attributes:
        occupancy_s: C, sum over the kernels of one iteration of achieved occupancy x run time (co-location, Equation 4.3).
        bandwidth_s: M, the same with the share of memory bandwidth used (Equation 4.2).
        utilisation_ratio: share of time with a kernel running, 0 to 1.
        memory_mib: most GPU memory held.
    """

    workload: JobKind
    occupancy_s: Estimate | None = None
    bandwidth_s: Estimate | None = None
    utilisation_ratio: Estimate | None = None
    memory_mib: Estimate | None = None


class InterferenceEstimator(Protocol):
    """Somebody who may know how much jobs slow each other down."""

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """Iteration time of ``slowed`` beside ``others`` on the same GPUs over its time alone; None if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class TimeSlicingPrior:
    """The prior: jobs take turns, so with n of them each takes n times as long.

    By Theorem 1 two jobs that merely take turns gain only where the new one needs less than half as long as the running
    one. The error says how far off it may be: SJF-BSBF saw ratios up to 6 for two jobs (Section IV-B).
    """

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate:
        jobs = 1 + len(others)
        return Estimate(float(jobs), 2.0 * jobs if others else 0.0, Source.PRIOR)

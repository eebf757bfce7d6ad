"""What jobs ask of a GPU, and the speed-up that sharing it is predicted to bring (Tabrizian 2020, Chapters 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from slurm_soda.policies.errors import PolicyError


class GpuLoad(NamedTuple):
    """What a job, or all jobs on a GPU, ask of it."""

    occupancy_s: float = 0.0
    """C, the sum over kernels of occupancy x time (Equation 4.3)."""
    bandwidth_s: float = 0.0
    """M, the sum over kernels of bandwidth use x time (Equation 4.2)."""

    def plus(self, other: GpuLoad) -> GpuLoad:
        """Sums over jobs on one GPU."""
        return GpuLoad(self.occupancy_s + other.occupancy_s, self.bandwidth_s + other.bandwidth_s)


NO_LOAD = GpuLoad()


class SpeedupModel(Protocol):
    """Something that predicts delta from the summed loads of jobs on one GPU."""

    def predicted(self, together: GpuLoad) -> float:
        """Predicted delta."""
        ...


@dataclass(frozen=True, slots=True)
class LinearSpeedup:
    """Delta = constant + by_occupancy x C + by_bandwidth x M (Section 5.1).

    Attributes:
        misfit: root of the mean square of the residuals of the fit.
    """

    constant: float
    by_occupancy: float
    by_bandwidth: float
    misfit: float = 0.0

    def predicted(self, together: GpuLoad) -> float:
        return self.constant + self.by_occupancy * together.occupancy_s + self.by_bandwidth * together.bandwidth_s


@dataclass(frozen=True, slots=True)
class OccupancyThreshold:
    """Sharing gains up to this sum of C: the red line of Figure 4.12.

    Attributes:
        wrong: share of the data that lies on the wrong side.
    """

    most_occupancy_s: float
    wrong: float = 0.0

    def predicted(self, together: GpuLoad) -> float:
        """1 is the line; only which side of it matters."""
        return 1.0 if together.occupancy_s <= self.most_occupancy_s else 0.0


LoadSample = tuple[GpuLoad, float]
"""Summed load of jobs that were measured together, and their delta."""


def fit_speedup(samples: Sequence[LoadSample]) -> LinearSpeedup:
    """Least squares. C and M go together in practice, so the solution of least norm is taken in scaled units.

    Raises:
        PolicyError: fewer than three samples, or a value that is not finite.
    """
    rows = _rows(samples, 3)
    scale = np.maximum(np.abs(rows[:, :2]).max(axis=0), 1e-300)
    matrix = np.column_stack((np.ones(len(rows)), rows[:, :2] / scale))
    found = np.linalg.lstsq(matrix, rows[:, 2], rcond=1e-6)[0]
    misfit = float(np.sqrt(np.mean((matrix @ found - rows[:, 2]) ** 2)))
    return LinearSpeedup(float(found[0]), float(found[1] / scale[0]), float(found[2] / scale[1]), misfit)


def fit_threshold(samples: Sequence[LoadSample]) -> OccupancyThreshold:
    """The sum of C, halfway between two samples, that puts fewest on the wrong side; of equals the lowest. O(n log n).

    Raises:
        PolicyError: fewer than two samples, or a value that is not finite.
    """
    rows = _rows(samples, 2)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    gains = rows[:, 2] > 1
    # After k samples: those below that do not gain, and those above that do.
    wrong = np.concatenate(([0], np.cumsum(~gains))) + gains.sum() - np.concatenate(([0], np.cumsum(gains)))
    sums = rows[:, 0]
    cuts = np.concatenate(([-math.inf], (sums[:-1] + sums[1:]) / 2, [math.inf]))
    between = np.concatenate(([True], sums[:-1] < sums[1:], [True]))  # no line runs between equal sums
    best = int(np.argmin(np.where(between, wrong, len(rows) + 1)))
    line = float(cuts[best])
    if math.isinf(line):  # all on one side: no further than was measured
        line = float(sums[-1]) if line > 0 else 0.0
    return OccupancyThreshold(line, float(wrong[best]) / len(rows))


def _rows(samples: Sequence[LoadSample], least: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    if len(samples) < least:
        raise PolicyError(f"{least} measurements of jobs together are needed, not {len(samples)}: measure more")
    rows = np.array([(load.occupancy_s, load.bandwidth_s, delta) for load, delta in samples], dtype=np.float64)
    if not np.all(np.isfinite(rows)):
        raise PolicyError("measurements of jobs together must be finite numbers")
    return rows

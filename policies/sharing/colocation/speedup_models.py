"""Co-location by occupancy: least C onto least summed C, two or three jobs a GPU (Tabrizian 2020, Chapters 4 and 5)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from slurm_soda.policies.errors import PolicyError


class KernelLoad(NamedTuple):
    """One kernel of one iteration, profiled alone."""

    time_s: float
    occupancy: float
    """Achieved occupancy, 0 to 1."""
    bandwidth: float
    """Share of the memory bandwidth used, 0 to 1."""


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


def sum_kernel_loads(kernels: Sequence[KernelLoad]) -> GpuLoad:
    """C and M of one iteration. The thesis' are of two and in other units, so its threshold of 4e7 means nothing here.

    Raises:
        PolicyError: a time is negative or a share not from 0 to 1.
    """
    for kernel in kernels:
        if not (0 <= kernel.time_s < math.inf and 0 <= kernel.occupancy <= 1 and 0 <= kernel.bandwidth <= 1):
            raise PolicyError(f"a kernel has a time from 0 s and shares from 0 to 1, not {kernel}")
    return GpuLoad(
        math.fsum(kernel.occupancy * kernel.time_s for kernel in kernels),
        math.fsum(kernel.bandwidth * kernel.time_s for kernel in kernels),
    )


def measured_speedup(alone_s: Sequence[float], shared_s: Sequence[float]) -> float:
    """The delta of Equation 4.1: iteration times alone, added, over the longest while sharing. Above 1 sharing gains.

    It supposes equally many iterations of each; where a job has many short ones it says little.

    Raises:
        PolicyError: no job, not one shared time each, or a time that is not positive.
    """
    if not alone_s or len(alone_s) != len(shared_s) or not all(0 < time < math.inf for time in (*alone_s, *shared_s)):
        raise PolicyError("a speed-up needs positive iteration times of the same jobs, alone and shared")
    return math.fsum(alone_s) / max(shared_s)


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


@dataclass(frozen=True, slots=True)
class LoadedGpu:
    """What a GPU holds already."""

    load: GpuLoad = NO_LOAD
    jobs: int = 0


def colocate(
    jobs: Sequence[GpuLoad], gpus: Sequence[LoadedGpu], judge: SpeedupModel, most_jobs: int = 3
) -> list[int | None]:
    """The GPU of each job, by its row; None for those that wait (Algorithm 2).

    The job of least C goes to the GPU of least summed C, until the speed-up there is predicted below 1; then no other
    job would do better. Ties go to the first. An empty GPU takes any job. GPUs with ``most_jobs`` are out: the thesis
    measured two or three.

    Complexity: O(n log n + m log m + n log m) for n jobs and m GPUs.

    Raises:
        PolicyError: fewer than one job a GPU allowed.
    """
    if most_jobs < 1:
        raise PolicyError(f"a GPU must be allowed at least one job, not {most_jobs!r}")
    found: list[int | None] = [None] * len(jobs)
    heap = [(gpu.load.occupancy_s, row, gpu) for row, gpu in enumerate(gpus) if gpu.jobs < most_jobs]
    heapq.heapify(heap)
    for job in sorted(range(len(jobs)), key=lambda row: jobs[row].occupancy_s):
        if not heap:
            break
        _, row, gpu = heap[0]
        together = gpu.load.plus(jobs[job])
        if gpu.jobs and judge.predicted(together) < 1:
            break
        found[job] = row
        fuller = LoadedGpu(together, gpu.jobs + 1)
        if fuller.jobs < most_jobs:
            heapq.heapreplace(heap, (together.occupancy_s, row, fuller))
        else:
            heapq.heappop(heap)
    return found


def _rows(samples: Sequence[LoadSample], least: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    if len(samples) < least:
        raise PolicyError(f"{least} measurements of jobs together are needed, not {len(samples)}: measure more")
    rows = np.array([(load.occupancy_s, load.bandwidth_s, delta) for load, delta in samples], dtype=np.float64)
    if not np.all(np.isfinite(rows)):
        raise PolicyError("measurements of jobs together must be finite numbers")
    return rows

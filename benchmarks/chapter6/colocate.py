"""Algorithm 2 of the thesis: a queue of jobs onto GPUs at once, and the speed-up that it is judged by (Chapters 4 and 5)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.colocation.speedup_models import NO_LOAD, GpuLoad, SpeedupModel


def speedup(alone_s: Sequence[float], shared_s: Sequence[float]) -> float:
    """The delta of Equation 4.1: iteration times alone, added, over the longest while sharing. Above 1 sharing gains.

    It supposes equally many iterations of each; where a job has many short ones it says little.

    Raises:
        PolicyError: no job, not one shared time each, or a time that is not positive.
    """
    if not alone_s or len(alone_s) != len(shared_s) or not all(0 < time < math.inf for time in (*alone_s, *shared_s)):
        raise PolicyError("a speed-up needs positive iteration times of the same jobs, alone and shared")
    return math.fsum(alone_s) / max(shared_s)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU holds already."""

    load: GpuLoad = NO_LOAD
    jobs: int = 0


def colocate(jobs: Sequence[GpuLoad], gpus: Sequence[Gpu], judge: SpeedupModel, most_jobs: int = 3) -> list[int | None]:
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
        fuller = Gpu(together, gpu.jobs + 1)
        if fuller.jobs < most_jobs:
            heapq.heapreplace(heap, (together.occupancy_s, row, fuller))
        else:
            heapq.heappop(heap)
    return found

"""The best and the worst case of Chapter 6: jobs submitted at once to two GPUs, one by one or together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chapter6.colocate import Gpu, colocate, speedup
from benchmarks.chapter6.gpu import SimulatedTraining, run_together
from slurm_soda.policies.sharing.colocation.speedup_models import (
    GpuLoad,
    OccupancyThreshold,
    SpeedupModel,
    fit_threshold,
)

GPUS = 2
ITERATIONS = 1000
IMAGE_S = 0.000586
"""To load one image. From Section 6.3: with two data workers large batches take 25 % longer alone than with ten."""
HOST_S = 0.002


def training(name: str, batch: int, kernels_s: float, occupancy: float, workers: int) -> SimulatedTraining:
    """With so many data workers."""
    return SimulatedTraining(name, kernels_s, occupancy, HOST_S, batch * IMAGE_S / workers, ITERATIONS)


def best_case(workers: int, occupancy: float) -> list[SimulatedTraining]:
    """Twice VGG-19, VGG-11 and ResNet-18 with batches of 64 (Section 6.2)."""
    kernels_s = {"VGG-19": 0.016, "VGG-11": 0.007, "ResNet-18": 0.014}
    return [training(name, 64, time_s, occupancy, workers) for _ in range(2) for name, time_s in kernels_s.items()]


def worst_case(workers: int, occupancy: float) -> list[SimulatedTraining]:
    """Twice SENet-18 and ResNet-18 with batches of 256 (Section 6.3)."""
    kernels_s = {"SENet-18": 0.062, "ResNet-18": 0.056}
    return [training(name, 256, time_s, occupancy, workers) for _ in range(2) for name, time_s in kernels_s.items()]


@dataclass(frozen=True, slots=True)
class Chapter6Times:
    """What came of it; JCT as the thesis has it, from start to end."""

    makespan_s: float
    jct_s: float
    wait_s: float


def fifo(jobs: Sequence[SimulatedTraining]) -> Chapter6Times:
    """One job a GPU, in the order of submission."""
    free_s, waits_s, jcts_s = [0.0] * GPUS, [], []
    for job in jobs:
        at = free_s.index(min(free_s))
        (end_s,) = run_together([job], mps=True, start_s=free_s[at])
        waits_s.append(free_s[at])
        jcts_s.append(end_s - free_s[at])
        free_s[at] = end_s
    return Chapter6Times(max(free_s), sum(jcts_s) / len(jobs), sum(waits_s) / len(jobs))


def together(jobs: Sequence[SimulatedTraining], *, mps: bool, judge: SpeedupModel) -> Chapter6Times:
    """As Algorithm 2 places them; all of them start at once, as none is left over here."""
    loads = [load_of(job) for job in jobs]
    places = colocate(loads, [Gpu()] * GPUS, judge)
    if None in places:
        raise AssertionError("a job waits; the thesis' cases have room for all")
    ends_s = [0.0] * len(jobs)
    for gpu in range(GPUS):
        here = [at for at, place in enumerate(places) if place == gpu]
        for at, end_s in zip(here, run_together([jobs[at] for at in here], mps=mps), strict=True):
            ends_s[at] = end_s
    return Chapter6Times(max(ends_s), sum(ends_s) / len(jobs), 0.0)


def load_of(job: SimulatedTraining) -> GpuLoad:
    """C of one iteration (Equation 4.3)."""
    return GpuLoad(job.occupancy * job.kernels_s)


def delta(jobs: Sequence[SimulatedTraining], *, mps: bool) -> float:
    """Speed-up of one iteration (Equation 4.1), over the time in which all of them run."""
    shared_s = [end_s / job.iterations for job, end_s in zip(jobs, run_together(jobs, mps=mps), strict=True)]
    return speedup([job.alone_s for job in jobs], shared_s)


def fitted(jobs: Sequence[SimulatedTraining]) -> OccupancyThreshold:
    """The line of Figure 4.12, from all pairs and triples of these jobs, measured with MPS."""
    samples = []
    for one in range(len(jobs)):
        for other in range(one + 1, len(jobs)):
            for group in ([jobs[one], jobs[other]], *([jobs[one], jobs[other], third] for third in jobs[other + 1 :])):
                load = GpuLoad(sum(load_of(job).occupancy_s for job in group))
                samples.append((load, delta(group, mps=True)))
    return fit_threshold(samples)

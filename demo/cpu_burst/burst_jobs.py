"""The burst's jobs: a steady stream of training jobs, and a storm of CPU jobs in the middle of it.

After SODA's Wednesday (Sections III-A and III-B): CPU jobs come in a burst that takes every core, so that training jobs wait
although GPUs are free. What is kept from the paper: 70 % of the jobs are CPU jobs; 76.1 % of the GPU jobs ask for one or two
cores and 15.3 % for more than ten (Figure 3(b)); most ask for fewer than four GPUs; GPUs are busy less than 80 % of the
time. What is scaled: hours to seconds, 80 nodes to two. Jobs sleep instead of computing, because the nodes' cores are
claimed, not real; a job that is aborted starts anew from nothing, a training job too.

The draw is stratified, as few jobs would otherwise make another burst of every seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

USERS = ("alice", "bob", "carol")

GPU_JOBS, CPU_JOBS = 28, 64
BACKGROUND_CPU_JOBS = 10
"""So many of the CPU jobs come outside the burst."""
SPAN_S = 90.0
"""Training jobs arrive over this time, the CPU jobs outside the burst too."""
BURST_FROM_S, BURST_FOR_S = 15.0, 20.0
GPU_RUN_S = (5.0, 16.0)
CPU_RUN_S = (6.0, 14.0)
GPU_SHARES = {1: 0.65, 2: 0.2, 4: 0.15}
"""GPUs of a training job, all on one node."""
CORE_SHARES = {1: 0.4, 2: 0.361, 4: 0.086, 11: 0.153}
"""Cores of a training job: Figure 3(b)."""
CPU_CORE_SHARES = {2: 0.25, 4: 0.35, 8: 0.25, 12: 0.15}
LIMIT_MIN = 1
"""Slurm's least time limit; the longest job needs a quarter of it."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BurstJob:
    """One job to be submitted."""

    name: str
    user: str
    arrival_s: float
    """Seconds after the first submission."""
    gpus: int
    """0 for a CPU job."""
    cores: int
    run_s: float


def draw_burst(seed: int = 1, *, scale: float = 1.0) -> tuple[BurstJob, ...]:
    """Draw the jobs, by arrival; the same arguments give the same jobs.

    Args:
        seed: another one is another mix.
        scale: part of the jobs, and of the time they arrive in; for tests.

    Raises:
        ValueError: ``scale`` is not in (0, 1].
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale {scale} is not above 0 and at most 1")
    rng = np.random.default_rng(seed)
    training, storm, quiet = (
        max(1, round(n * scale)) for n in (GPU_JOBS, CPU_JOBS - BACKGROUND_CPU_JOBS, BACKGROUND_CPU_JOBS)
    )
    span_s, burst_s = SPAN_S * scale, BURST_FOR_S * scale
    jobs = [
        *_draw_jobs(rng, "train", _spread_arrivals(rng, training, 0.0, span_s), GPU_RUN_S, GPU_SHARES, CORE_SHARES),
        *_draw_jobs(
            rng,
            "burst",
            _spread_arrivals(rng, storm, BURST_FROM_S * scale, burst_s),
            CPU_RUN_S,
            {0: 1.0},
            CPU_CORE_SHARES,
        ),
        *_draw_jobs(rng, "quiet", _spread_arrivals(rng, quiet, 0.0, span_s), CPU_RUN_S, {0: 1.0}, CPU_CORE_SHARES),
    ]
    return tuple(sorted(jobs, key=lambda job: (job.arrival_s, job.name)))


def _draw_jobs(  # noqa: PLR0917 - a kind of jobs is six numbers
    rng: np.random.Generator,
    word: str,
    arrival_s: Floats,
    run_s: tuple[float, float],
    gpu_shares: dict[int, float],
    core_shares: dict[int, float],
) -> list[BurstJob]:
    n = len(arrival_s)
    gpus, cores = _draw_by_shares(rng, n, gpu_shares), _draw_by_shares(rng, n, core_shares)
    runs_s = run_s[0] + (run_s[1] - run_s[0]) * _stratified(rng, n)
    users = rng.permutation(np.resize(np.array(USERS), n))
    return [
        BurstJob(
            name=f"{word}-{at + 1:02d}",
            user=str(users[at]),
            arrival_s=round(float(arrival_s[at]), 3),
            gpus=int(gpus[at]),
            cores=max(int(cores[at]), int(gpus[at])),
            run_s=round(float(runs_s[at]), 1),
        )
        for at in range(n)
    ]


def _draw_by_shares(rng: np.random.Generator, n: int, shares: dict[int, float]) -> Ints:
    """``n`` values in exactly these shares, up to rounding, in random order."""
    edges = np.round(np.cumsum(list(shares.values())) / sum(shares.values()) * n).astype(int)
    return rng.permutation(np.repeat(list(shares), np.diff(edges, prepend=0)).astype(np.int64))


def _stratified(rng: np.random.Generator, n: int) -> Floats:
    """``n`` numbers in [0, 1), one in each ``1 / n``, in random order."""
    return rng.permutation((np.arange(n) + rng.random(n)) / max(n, 1))


def _spread_arrivals(rng: np.random.Generator, n: int, from_s: float, for_s: float) -> Floats:
    """``n`` arrivals in an interval, evenly but not regularly."""
    return np.sort(from_s + for_s * _stratified(rng, n))

"""Workloads that would have left the same accounting.

Slurm writes times down in whole seconds. With few jobs, a job that ends a moment earlier changes who runs next and with it
the mean of all, so a prediction from one workload says little: several are simulated, and their spread is reported.
"""

from __future__ import annotations

import numpy as np

from slurm_soda.simulator.workload import Workload

_JOBS = 1000
"""So many jobs, over all members, are enough for a steady mean."""
_MOST = 10
_SHORTEST_S = 0.05


def variant_count(jobs: int) -> int:
    """How many workloads are worth simulating."""
    return max(1, min(_MOST, _JOBS // max(jobs, 1)))


def shift_within_the_second(workload: Workload, seed: int) -> Workload:
    """The same jobs, in the same order, each submitted within its second and run as long as its whole seconds allow.

    A submission moves by U(0, 1) s, a run time by the difference of two such numbers. The same seed gives the same jobs.
    """
    rng = np.random.default_rng(seed)
    jobs = len(workload)
    submit_s = np.sort(workload.submit_s + rng.random(jobs))
    run_s = np.maximum(workload.run_s + rng.random(jobs) - rng.random(jobs), _SHORTEST_S)
    return workload.with_columns(submit_s=submit_s, run_s=run_s)


def make_variants(workload: Workload) -> tuple[Workload, ...]:
    """The workload as it is if it is large, else :func:`variant_count` of its kind."""
    count = variant_count(len(workload))
    return (workload,) if count == 1 else tuple(shift_within_the_second(workload, seed) for seed in range(count))

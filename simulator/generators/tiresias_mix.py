"""The job mix of Tiresias' testbed."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.generators.distributions import (
    draw_bounded_pareto,
    draw_poisson_arrivals,
    names_of_codes,
    shuffled_codes,
    split_by_shares,
)
from slurm_soda.simulator.traces.parsing.workload_assembly import assemble_workload
from slurm_soda.simulator.workload import Workload

GPU_SIZES = (1, 2, 4, 8, 16, 32)
JOBS_OF_SIZE = (240, 40, 80, 90, 25, 5)
"""Tiresias, Section 5.1."""
MODELS = (
    "vgg19", "vgg16", "vgg11", "alexnet", "resnet152", "resnet101", "resnet50", "inception4", "inception3", "googlenet",
)  # fmt: skip
"""Tiresias, Table 6; 48 jobs each (Section 5.1)."""
MEAN_GAP_S = 30.0
"""Of a Poisson process (Section 5.1)."""
SHORTEST_S, SHORT_S, LONGEST_S = 120.0, 800.0, 7200.0
"""Training takes 2 minutes to 2 hours, and a job below 800 s is short (Section 5.1)."""
SMALL_GPUS = 4
"""A job of more GPUs is large (Section 5.1)."""
LONG_OF_SMALL = 12.5 / (63.5 + 12.5)
LONG_OF_LARGE = 7.5 / (16.5 + 7.5)
"""Shares of long jobs by Table 3 (SS 63.5 %, SL 12.5 %, LS 16.5 %, LL 7.5 %)."""


def draw_mix(rng: np.random.Generator, jobs: int, load_ratio: float, name: str) -> Workload:
    """Jobs with the paper's sizes, bins, models and arrivals, each in its exact share.

    Inside a bin the density of run times falls as 1 / x²: the paper only calls it heavy-tailed. That law puts the
    mean of small and short jobs at 268 s (the paper's JCT of them under Tiresias-L, waits included, is 300 s) and the
    GPU time of 480 jobs at about 23 000 s x 60 GPUs (its makespan is 27 400 s).
    """
    size = shuffled_codes(rng, split_by_shares(jobs, JOBS_OF_SIZE))
    gpus = np.array(GPU_SIZES, dtype=np.int64)[size]
    model = shuffled_codes(rng, split_by_shares(jobs, [1.0] * len(MODELS)))
    workload, _ = assemble_workload(
        name,
        submit_s=draw_poisson_arrivals(rng, jobs, MEAN_GAP_S / load_ratio),
        run_s=_run_times(rng, gpus),
        gpus=gpus,
        model=names_of_codes(model, MODELS),
    )
    return workload


def _run_times(rng: np.random.Generator, gpus: IntColumn) -> FloatColumn:
    run_s = draw_bounded_pareto(rng, len(gpus), SHORTEST_S, SHORT_S)
    for rows, share in (
        (np.flatnonzero(gpus <= SMALL_GPUS), LONG_OF_SMALL),
        (np.flatnonzero(gpus > SMALL_GPUS), LONG_OF_LARGE),
    ):
        is_long = rows[shuffled_codes(rng, split_by_shares(len(rows), (1.0 - share, share))) == 1]
        run_s[is_long] = draw_bounded_pareto(rng, len(is_long), SHORT_S, LONGEST_S)
    return run_s

"""OJPP on full-size trainings: slowdowns from a pair table in Gavel's format, instead of drawn ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.ojpp.networks import JOBS, MOST_WORKERS, DrawnQueue
from benchmarks.ojpp.offline import place
from benchmarks.ojpp.patterns import pack_queue
from slurm_soda.policies.sharing.ojpp.job_demands import NEVER_TOGETHER
from slurm_soda.policies.sharing.ojpp.packing import Packing, PackingJobs, PackingRules
from slurm_soda.policies.sharing.ojpp.strategies import find_strategy
from slurm_soda.simulator.speed.pair_table import load_pairs

SEEDS = tuple(range(1, 21))
WAYS = ("greedy", "ojpp", "patterns")
BOUNDS = ((0.1, 0.1), (0.2, 0.1), (0.4, 0.1), (0.2, 0.2), (0.5, 0.5))
"""Interference and balance."""


def world_of(path: Path, gpu: str, seed: int) -> DrawnQueue:
    """20 jobs of 1 to 10 workers, of kinds that were measured on one GPU, each as likely.

    Memory plays no part but in who fits with whom, which the table knows; nobody collides.
    """
    table = load_pairs(path)
    kinds = [kind for kind, speed in table.tables[gpu].alone.items() if kind.scale == 1 and speed]
    slowdown = np.full((len(kinds), len(kinds)), NEVER_TOGETHER)
    for row, kind in enumerate(kinds):
        for column, other in enumerate(kinds):
            both = table.shared(gpu, kind, other)
            if both is not None:
                slowdown[row, column] = max(1 / both[0] - 1, 0.0)
    rng = np.random.default_rng(seed)
    nothing = np.zeros(JOBS)
    workers = rng.integers(1, MOST_WORKERS, JOBS, endpoint=True)
    jobs = PackingJobs(
        workers,
        nothing,
        nothing,
        nothing,
        nothing,
        rng.integers(0, len(kinds), JOBS),
        np.full(JOBS, NEVER_TOGETHER / 2),
    )
    return DrawnQueue(jobs, slowdown, tuple(map(str, kinds)))


def saved(world: DrawnQueue, way: str, rules: PackingRules) -> float:
    """Part of a dedicated cluster's devices that are not needed; workers of one job are apart."""
    if way == "patterns":
        devices = pack_queue(world.jobs, world.slowdown, rules, tries=300).used
    else:
        chosen = find_strategy(way, rules)
        packing = Packing(world.jobs, world.slowdown, world.workers, chosen.rules)
        devices = place(packing, chosen.order(world.jobs)).used
    return 1 - devices / world.workers


def rows(path: Path, gpu: str) -> list[list[str]]:
    """Devices saved in %, mean ± standard deviation over seeds, by bounds and way."""
    found = []
    for theta, balance in BOUNDS:
        cells = []
        for way in WAYS:
            parts = 100 * np.array(
                [saved(world_of(path, gpu, seed), way, PackingRules(0.1, theta, balance)) for seed in SEEDS]
            )
            cells.append(f"{parts.mean():.1f} ± {parts.std(ddof=1):.1f}")
        found.append([f"{theta:g}, {balance:g}", *cells])
    return found

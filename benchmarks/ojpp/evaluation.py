"""One queue placed in one way, and many of them at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.ojpp.networks import DrawnQueue, draw
from benchmarks.ojpp.offline import place
from benchmarks.ojpp.patterns import Placement, pack_queue
from benchmarks.ojpp.performance import speeds
from slurm_soda.policies.sharing.ojpp.packing import Packing, PackingRules
from slurm_soda.policies.sharing.ojpp.strategies import STRATEGIES, find_strategy
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.runs.batch import end_with_parent

PATTERNS = "patterns"
"""Ours: :func:`benchmarks.ojpp.patterns.pack_queue`, with the guarantee below."""
SEEDS = tuple(range(1, 21))
TRIES = 300


class Case(NamedTuple):
    """What to do to the queues of one kind."""

    kind: str
    way: str
    """A strategy of Table 4, or :data:`PATTERNS`."""
    collision: float
    interference: float
    balance: float
    guarantee: float = 0.0
    """Of :data:`PATTERNS`: mean speed of a queue's jobs."""
    apart: bool = False
    """No two workers of one job on a device; the paper allows it."""
    tries: int = TRIES

    def rules(self) -> PackingRules:
        return PackingRules(self.collision, self.interference, self.balance, apart=self.apart)


@dataclass(frozen=True, slots=True)
class QueueResult:
    """One queue."""

    workers: int
    devices: int
    speed: FloatColumn
    """By job."""
    network: tuple[str, ...]
    """By job."""
    sizes: tuple[int, ...]
    """Workers, by job."""

    @property
    def saved(self) -> float:
        """Part of the dedicated cluster's devices."""
        return 1 - self.devices / self.workers

    @property
    def performance(self) -> float:
        """Mean speed next to alone."""
        return float(self.speed.mean())

    @property
    def degradation(self) -> float:
        """Mean of (time - time alone) / time alone."""
        return float((1 / self.speed - 1).mean())


def placed(world: DrawnQueue, case: Case) -> Placement:
    """Devices of a queue."""
    if case.way == PATTERNS:
        return pack_queue(world.jobs, world.slowdown, case.rules(), case.guarantee, case.tries)
    chosen = find_strategy(case.way, case.rules())
    return place(Packing(world.jobs, world.slowdown, world.workers, chosen.rules), chosen.order(world.jobs))


def evaluate(case: Case, seed: int) -> QueueResult:
    """One queue of a kind."""
    world = draw(case.kind, seed)
    placement = placed(world, case)
    if not all(placement.devices):
        raise AssertionError(f"{case}, seed {seed}: a job found no device")
    names = tuple(world.names[row] for row in world.jobs.model.tolist())
    sizes = tuple(world.jobs.workers.tolist())
    return QueueResult(world.workers, placement.used, speeds(world, placement), names, sizes)


def evaluate_all(cases: Iterable[Case], workers: int | None = None) -> Mapping[Case, list[QueueResult]]:
    """All seeds of each case, on all CPUs."""
    listed = list(dict.fromkeys(cases))
    pairs = [(case, seed) for case in listed for seed in SEEDS]
    with ProcessPoolExecutor(workers or len(os.sched_getaffinity(0)), get_context("spawn"), end_with_parent) as pool:
        found = list(pool.map(evaluate, *zip(*pairs, strict=True), chunksize=2))
    return {case: found[at * len(SEEDS) : (at + 1) * len(SEEDS)] for at, case in enumerate(listed)}


def mean(found: Iterable[QueueResult], what: str) -> tuple[float, float]:
    """Mean and standard deviation over seeds, of a property."""
    values = np.array([getattr(one, what) for one in found])
    return float(values.mean()), float(values.std(ddof=1))


__all__ = ["PATTERNS", "SEEDS", "STRATEGIES", "Case", "QueueResult", "evaluate", "evaluate_all", "mean", "placed"]

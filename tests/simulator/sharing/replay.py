"""What an outcome says of jobs' progress, worked out anew from nothing but who was on which GPU when."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind as Kind
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.sharing.true_slowdowns import TrueSlowdowns


def kinds_of(outcome: SimulationOutcome) -> list[Kind]:
    """As the trace names models; for workloads whose models are all in the table."""
    work = outcome.workload
    columns = zip(work.model.tolist(), work.batch_size.tolist(), work.gpus.tolist(), strict=True)
    return [Kind(work.models[model], batch, "v100", gpus) for model, batch, gpus in columns]


def devices_of(outcome: SimulationOutcome) -> list[frozenset[int]]:
    """GPUs of each segment."""
    seen = outcome.sharing
    assert seen is not None
    bounds, flat = seen.segment_start.tolist(), seen.device.tolist()
    return [frozenset(flat[bounds[at] : bounds[at + 1]]) for at in range(len(bounds) - 1)]


def progress_s(outcome: SimulationOutcome, truth: TrueSlowdowns, costs: Costs) -> np.ndarray:
    """Work done by each job, in seconds alone; for runs without failures, accumulation and checkpoints."""
    parts, kinds, held = outcome.segments, kinds_of(outcome), devices_of(outcome)
    times = sorted({*parts.start_s.tolist(), *parts.end_s.tolist()})
    order = np.lexsort((parts.end_s, parts.start_s, parts.job)).tolist()
    first: dict[int, int] = {}
    for at in order:
        first.setdefault(int(parts.job[at]), at)
    done = np.zeros(len(outcome.workload))
    for at in order:
        job, start_s, end_s = int(parts.job[at]), float(parts.start_s[at]), float(parts.end_s[at])
        cost_s = costs.start_s if first[job] == at else costs.restart_s
        for begin_s, until_s in pairwise(times):
            if begin_s >= start_s and until_s <= end_s:
                xi = _xi(at, begin_s, outcome, truth, kinds, held)
                done[job] += max(until_s - max(begin_s, start_s + cost_s), 0.0) / xi
    return done


def _xi(
    at: int,
    now_s: float,
    outcome: SimulationOutcome,
    truth: TrueSlowdowns,
    kinds: list[Kind],
    held: list[frozenset[int]],
) -> float:
    parts, worst = outcome.segments, 1.0
    mine = kinds[int(parts.job[at])]
    for device in held[at]:
        xi = 1.0
        for other in range(len(held)):
            there = device in held[other] and parts.start_s[other] <= now_s < parts.end_s[other]
            if other != at and there:
                xi += truth.pair_xi(mine, kinds[int(parts.job[other])]) - 1.0
        worst = max(worst, xi)
    assert math.isfinite(worst)
    return worst

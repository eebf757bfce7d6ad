"""From times of iterations on few and on many nodes to slowdowns: for the simulator and for sodad alike.

The slowdown of one owner's jobs of a kind on n nodes more than needed is the median time of an iteration there over that on
the fewest nodes, each weighted by how long it was watched. Others rely on the median of owners' values alone, where there
are three or more (:mod:`slurm_soda.policies.run_times.owners`): a lie moves nobody else's value beyond those of honest
owners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from slurm_soda.policies.run_times.owners import median_over_owners, weighted_median
from slurm_soda.policies.sharing.job_kinds import Estimate, Source
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES

NEWEST_RUNS = 64
"""Of an owner's jobs of one kind, on so many nodes."""
MEASURED_AFTER_S = 60.0
"""So long must runs have iterated in all, on the fewest nodes and on more; our choice, as for pairs that share a GPU."""
PRIOR_ERROR_RATIO = 0.2
"""Our choice, as for other quantities of a kind: as if one earlier value had been off by a fifth."""


class TimedRun(NamedTuple):
    """A run of a job that shared its GPUs with nobody."""

    iteration_s: float
    """Mean time of an iteration."""
    clock_s: float
    """For how long it was counted."""


def measure_slowdown(packed: Sequence[TimedRun], spread: Sequence[TimedRun]) -> Estimate | None:
    """What one owner's runs on the fewest nodes and on more show; ``None``: too little.

    The error is what the next values are expected to be off by: the mean distance from both medians, with
    :data:`PRIOR_ERROR_RATIO` as one run more of each.
    """
    if min(math.fsum(run.clock_s for run in runs) for runs in (packed, spread)) < MEASURED_AFTER_S:
        return None
    (packed_s, packed_error), (spread_s, spread_error) = _typical(packed), _typical(spread)
    ratio = spread_s / packed_s
    return Estimate(ratio, ratio * (packed_error + spread_error), Source.MEASURED)


def _typical(runs: Sequence[TimedRun]) -> tuple[float, float]:
    """Median time of an iteration, and the expected relative error."""
    seen = [run.iteration_s for run in runs]
    level = weighted_median(seen, [run.clock_s for run in runs])
    distance = math.fsum(abs(value - level) for value in seen) / level
    return level, (distance + PRIOR_ERROR_RATIO) / (len(seen) + 1)


def join_owners(slowdowns: Sequence[float]) -> Estimate | None:
    """What owners rely on who have no value of their own: the median of one value an owner; ``None`` from too few owners."""
    level = median_over_owners(slowdowns)
    if level is None:
        return None
    typical = median(abs(value - level) for value in slowdowns)
    error = (len(slowdowns) * typical + PRIOR_ERROR_RATIO * level) / (len(slowdowns) + 1)
    return Estimate(level, error, Source.MEASURED)


class SlowdownRow(NamedTuple):
    """What is known of one kind, as :class:`.SpreadSlowdowns` has it."""

    expected: tuple[float, ...]
    at_most: tuple[float, ...]


def slowdown_row(known: Mapping[int, Estimate]) -> SlowdownRow | None:
    """A kind's slowdowns, by number of nodes beyond the fewest; ``None`` where none was measured.

    Where nobody ran on so many nodes it is taken to be as on the nearest number, the smaller one of two. What was measured
    is drawn towards 1, the nearer the less it differs from 1 by its error: with d = slowdown - 1 and the error e it
    counts as 1 + d * d^2 / (d^2 + e^2). Runs that are faster on more nodes count as no slower.
    """
    if not known:
        return None
    nearest = [known[min(known, key=lambda one: (abs(one - extra), one))] for extra in range(1, EXTRA_NODES + 1)]
    return SlowdownRow(tuple(map(_shrink, nearest)), tuple(max(one.plus_errors(1.0), 1.0) for one in nearest))


def _shrink(measured: Estimate) -> float:
    beyond = measured.value - 1.0
    if beyond <= 0.0:
        return 1.0
    return 1.0 + beyond / (1.0 + (measured.error / beyond) ** 2)

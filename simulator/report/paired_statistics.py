"""Figures of a policy over those of another one, such as stock Slurm, on the same jobs, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import FloatColumn, IntColumn

AVG_JCT, P99_WAIT, WORST_USER, WORST_JOB, AVG_SLOWDOWN = FIGURES = (
    "avg_jct",
    "p99_wait",
    "worst_user",
    "worst_job",
    "avg_slowdown",
)
"""Mean JCT; 99th percentile of the time waited; the largest mean JCT of a user; the largest JCT of a job, in seconds; mean
slowdown (:func:`bounded_slowdown`)."""
LEAST_WAIT_S = 60.0
"""A 99th percentile below a minute counts as one: nobody minds whether it is ten seconds or twenty."""
SHORTEST_S = 10.0
"""A slowdown counts a shorter job as one of ten seconds (Feitelson and Rudolph, 1998): else single ones decide the mean."""
DRAWS = 500
LEAST_USERS = 10
"""Where there are fewer, resampled users say little: then it is stretches of the submissions that are resampled."""
STRETCHES = 50
_INTERVAL = (2.5, 97.5)
_BOOTSTRAP_SEED = 1
_AT_A_TIME = 20_000_000
"""Numbers in memory at once."""

Draws = NDArray[np.float64]


class PairedRun(Protocol):
    """Columns of one run, a row a job that ended; those of two runs that are compared have the same jobs."""

    @property
    def jct_s(self) -> FloatColumn: ...
    @property
    def wait_s(self) -> FloatColumn: ...
    @property
    def user(self) -> IntColumn:
        """Numbers from 0."""
        ...

    @property
    def slowdown(self) -> FloatColumn | None:
        """JCT over run time; None: run times are not at hand."""
        ...


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio, and what it is in resampled workloads."""

    value: float
    draws: Draws

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return float(np.percentile(self.draws, _INTERVAL[0]))

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return float(np.percentile(self.draws, _INTERVAL[1]))

    def document(self) -> dict[str, float]:
        """As plain data."""
        return {"ratio": self.value, "low": self.low, "high": self.high}


def bounded_slowdown(jct_s: FloatColumn, run_s: FloatColumn) -> FloatColumn:
    """JCT over the run time alone, of which at least :data:`SHORTEST_S` count; at least 1."""
    slowdown: FloatColumn = np.maximum(jct_s / np.maximum(run_s, SHORTEST_S), 1.0)
    return slowdown


def jains_index(values: FloatColumn) -> float:
    """1: all are equal; 1 / n: one of n has everything (Jain, Chiu and Hawe, 1984). NaN of nothing."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else math.nan


def figures(run: PairedRun, group: IntColumn | None = None, weights: Draws | None = None) -> dict[str, FloatColumn]:
    """All of :data:`FIGURES`, for each row of ``weights`` (draws x groups of jobs: how often they count; None: each once).

    ``group`` is that of each job, its user by default. With weights the percentile is the smallest wait that so many jobs do
    not exceed; a job of weight 0 is nobody's worst, and a user's mean is over those of his jobs that count at all.
    """
    group = run.user if group is None else group
    weights = np.ones((1, int(group.max()) + 1)) if weights is None else weights
    step = max(_AT_A_TIME // max(len(group), 1), 1)
    parts = [_figures(run, group, weights[at : at + step]) for at in range(0, len(weights), step)]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _figures(run: PairedRun, group: IntColumn, weights: Draws) -> dict[str, FloatColumn]:
    counts = weights[:, group]
    jobs = counts.sum(axis=1)
    order = np.argsort(run.wait_s, kind="stable")
    upto = np.cumsum(counts[:, order], axis=1)
    place = (upto < 0.99 * upto[:, -1:]).sum(axis=1)
    found = {
        AVG_JCT: counts @ run.jct_s / jobs,
        P99_WAIT: np.maximum(run.wait_s[order][np.minimum(place, len(order) - 1)], LEAST_WAIT_S),
        WORST_USER: _worst_user(run, counts),
        WORST_JOB: np.where(counts > 0, run.jct_s, 0.0).max(axis=1),
    }
    return found if run.slowdown is None else {**found, AVG_SLOWDOWN: counts @ run.slowdown / jobs}


def _worst_user(run: PairedRun, counts: Draws) -> FloatColumn:
    by_user = np.argsort(run.user, kind="stable")
    starts = np.flatnonzero(np.diff(run.user[by_user], prepend=-1))
    jobs = np.add.reduceat(counts[:, by_user], starts, axis=1)
    total_s = np.add.reduceat(counts[:, by_user] * run.jct_s[by_user], starts, axis=1)
    worst: FloatColumn = np.divide(total_s, jobs, out=np.zeros_like(total_s), where=jobs > 0).max(axis=1)
    return worst


def compare_runs(runs: Mapping[int, PairedRun], base: Mapping[int, PairedRun]) -> dict[str, Ratio]:
    """Each figure of a policy over another one's: the geometric mean over the seeds that both ran.

    The interval is that of workloads resampled in two stages: seeds, and in each of them users with all their jobs, since
    jobs of one user resemble each other and wait for the same things; with few users, stretches of the submissions, since
    jobs of one time do. Both policies are resampled alike.
    """
    seeds = sorted(set(runs) & set(base))
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    values: dict[str, list[float]] = {}
    logs: dict[str, list[FloatColumn]] = {}
    for seed in seeds:
        ours, theirs = runs[seed], base[seed]
        group = find_groups(ours)
        weights = draw_groups(rng, group)
        once, other = figures(ours), figures(theirs)
        drawn, against = figures(ours, group, weights), figures(theirs, group, weights)
        for key in once.keys() & other.keys():
            values.setdefault(key, []).append(math.log(once[key][0] / other[key][0]))
            logs.setdefault(key, []).append(np.log(drawn[key] / against[key]))
    picked = rng.integers(len(seeds), size=(DRAWS, len(seeds)))
    column = rng.integers(DRAWS, size=(DRAWS, len(seeds)))
    return {
        key: Ratio(math.exp(float(np.mean(values[key]))), np.exp(np.stack(logs[key])[picked, column].mean(axis=1)))
        for key in FIGURES
        if key in values
    }


def find_groups(run: PairedRun) -> IntColumn:
    """Of each job, what it is resampled with: its user's jobs, or those that were submitted at about its time."""
    if len(np.unique(run.user)) >= LEAST_USERS:
        return run.user
    jobs = len(run.user)
    stretches: IntColumn = np.arange(jobs) * min(STRETCHES, jobs) // max(jobs, 1)
    return stretches


def draw_groups(rng: np.random.Generator, group: IntColumn) -> Draws:
    """Groups that have jobs, resampled: how often each counts, a row a draw."""
    present = (np.bincount(group) > 0).astype(np.float64)
    return rng.multinomial(int(present.sum()), present / present.sum(), size=DRAWS).astype(np.float64)


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio | None:
    """Over several cells, which are what was asked for and not resampled; None: there is none."""
    if not ratios:
        return None
    value = math.exp(float(np.mean([math.log(ratio.value) for ratio in ratios])))
    return Ratio(value, np.exp(np.mean([np.log(ratio.draws) for ratio in ratios], axis=0)))


def most_hurt_user(runs: Mapping[int, PairedRun], base: Mapping[int, PairedRun], least_jobs: int = 10) -> float:
    """The largest mean JCT of a user over the same user's under the other policy, over all seeds; users with fewer jobs do
    not count. NaN: no user has so many.
    """
    worst = math.nan
    for seed in sorted(set(runs) & set(base)):
        user = runs[seed].user
        jobs = np.bincount(user)
        ours, theirs = (np.bincount(user, one[seed].jct_s) for one in (runs, base))
        counted = jobs >= least_jobs
        if counted.any():
            worst = float(np.fmax(worst, (ours[counted] / theirs[counted]).max()))
    return worst

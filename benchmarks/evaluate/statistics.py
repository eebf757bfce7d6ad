"""Figures of a policy over those of stock Slurm on the same jobs, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluate.runs import FinishedRun
from slurm_soda.policies.snapshot import FloatColumn

AVG_JCT, P99_WAIT, WORST_USER, WORST_JOB = FIGURES = ("avg_jct", "p99_wait", "worst_user", "worst_job")
"""Mean JCT; 99th percentile of the time waited; the largest mean JCT of a user; the largest JCT of a job. Seconds."""
LEAST_WAIT_S = 60.0
"""A 99th percentile below a minute counts as one: nobody minds whether it is ten seconds or twenty."""
DRAWS = 500
_INTERVAL = (2.5, 97.5)
_BOOTSTRAP_SEED = 1

Draws = NDArray[np.float64]


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


def figures(run: FinishedRun, weights: Draws | None = None) -> dict[str, FloatColumn]:
    """All of :data:`FIGURES`, for each row of ``weights`` (draws x users: how often a user counts; None: each once).

    With weights the percentile is the smallest wait that so many jobs do not exceed; a user of weight 0 is nobody's worst.
    """
    users = int(run.user.max()) + 1
    jobs = np.bincount(run.user, minlength=users)
    weights = np.ones((1, users)) if weights is None else weights
    total_s = np.bincount(run.user, run.jct_s, minlength=users)
    mean_s = total_s / np.maximum(jobs, 1)
    longest_s = np.zeros(users)
    np.maximum.at(longest_s, run.user, run.jct_s)
    counted = (weights > 0) & (jobs > 0)
    order = np.argsort(run.wait_s, kind="stable")
    upto = np.cumsum(weights[:, run.user[order]], axis=1)
    place = (upto < 0.99 * upto[:, -1:]).sum(axis=1)
    return {
        AVG_JCT: (weights @ total_s) / (weights @ jobs),
        P99_WAIT: np.maximum(run.wait_s[order][place], LEAST_WAIT_S),
        WORST_USER: np.where(counted, mean_s, 0.0).max(axis=1),
        WORST_JOB: np.where(counted, longest_s, 0.0).max(axis=1),
    }


def compare_runs(runs: Mapping[int, FinishedRun], stock: Mapping[int, FinishedRun]) -> dict[str, Ratio]:
    """Each figure of a policy over stock Slurm's: the geometric mean over the seeds that both ran.

    The interval is that of workloads resampled in two stages: seeds, and in each of them users with all their jobs, since
    jobs of one user resemble each other and wait for the same things. Both policies are resampled alike.
    """
    seeds = sorted(set(runs) & set(stock))
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    values: dict[str, list[float]] = {key: [] for key in FIGURES}
    logs: dict[str, list[FloatColumn]] = {key: [] for key in FIGURES}
    for seed in seeds:
        weights = draw_users(rng, runs[seed])
        once = figures(runs[seed]), figures(stock[seed])
        drawn = figures(runs[seed], weights), figures(stock[seed], weights)
        for key in FIGURES:
            values[key].append(math.log(once[0][key][0] / once[1][key][0]))
            logs[key].append(np.log(drawn[0][key] / drawn[1][key]))
    picked = rng.integers(len(seeds), size=(DRAWS, len(seeds)))
    column = rng.integers(DRAWS, size=(DRAWS, len(seeds)))
    return {
        key: Ratio(math.exp(float(np.mean(values[key]))), np.exp(np.stack(logs[key])[picked, column].mean(axis=1)))
        for key in FIGURES
    }


def draw_users(rng: np.random.Generator, run: FinishedRun) -> Draws:
    """Users who have jobs, resampled: how often each counts, a row a draw."""
    users = int(run.user.max()) + 1
    present = (np.bincount(run.user, minlength=users) > 0).astype(np.float64)
    return rng.multinomial(int(present.sum()), present / present.sum(), size=DRAWS).astype(np.float64)


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio | None:
    """Over several cells, which are what was asked for and not resampled; None: there is none."""
    if not ratios:
        return None
    value = math.exp(float(np.mean([math.log(ratio.value) for ratio in ratios])))
    return Ratio(value, np.exp(np.mean([np.log(ratio.draws) for ratio in ratios], axis=0)))


def most_hurt_user(runs: Mapping[int, FinishedRun], stock: Mapping[int, FinishedRun], least_jobs: int = 10) -> float:
    """The largest mean JCT of a user over the same user's under stock Slurm, over all seeds; users with fewer jobs do not
    count.
    """
    worst = 0.0
    for seed in set(runs) & set(stock):
        user = runs[seed].user
        jobs = np.bincount(user)
        ours, theirs = (np.bincount(user, one[seed].jct_s) for one in (runs, stock))
        counted = jobs >= least_jobs
        if counted.any():
            worst = max(worst, float((ours[counted] / theirs[counted]).max()))
    return worst

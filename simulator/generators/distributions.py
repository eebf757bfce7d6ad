"""Draws that several generators share, vectorised. Times are whole seconds, as in recorded traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn

DAY_S = 86_400.0
_HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class LogNormalMixture:
    """A mixture of log-normal distributions: (weight, median, standard deviation of the logarithm) of each."""

    parts: tuple[tuple[float, float, float], ...]

    def draw(self, rng: np.random.Generator, count: int, low: float, high: float) -> FloatColumn:
        """So many values, rounded; those beyond ``low`` or ``high`` are put there."""
        weights, medians, spreads = (np.array(column) for column in zip(*self.parts, strict=True))
        part = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(count), side="right")
        part = np.minimum(part, len(weights) - 1)
        values: FloatColumn = medians[part] * np.exp(spreads[part] * rng.standard_normal(count))
        return np.clip(np.round(values), low, high)


def draw_bounded_pareto(rng: np.random.Generator, count: int, low: float, high: float) -> FloatColumn:
    """Values with density proportional to 1 / x² between the bounds, rounded down."""
    values: FloatColumn = low / (1.0 - rng.random(count) * (1.0 - low / high))
    return np.floor(values)


def split_by_shares(total: int, shares: Sequence[float]) -> list[int]:
    """``total`` split by shares into whole numbers (largest remainders first, ties: the earlier share)."""
    exact = [total * share / sum(shares) for share in shares]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(shares)), key=lambda at: (counts[at] - exact[at], at))
    for at in by_remainder[: total - sum(counts)]:
        counts[at] += 1
    return counts


def shuffled_codes(rng: np.random.Generator, counts: Sequence[int]) -> IntColumn:
    """The number ``i`` ``counts[i]`` times, all in random order."""
    return rng.permutation(np.repeat(np.arange(len(counts), dtype=np.int64), counts))


def draw_choices(rng: np.random.Generator, count: int, shares: Sequence[float]) -> IntColumn:
    """Numbers of shares, each with its probability."""
    edges = np.cumsum(shares) / np.sum(shares)
    return np.minimum(np.searchsorted(edges, rng.random(count), side="right"), len(shares) - 1).astype(np.int64)


def zipf_shares(count: int) -> list[float]:
    """Shares of users: the k-th has 1 / k of the first."""
    return [1.0 / rank for rank in range(1, count + 1)]


def draw_poisson_arrivals(rng: np.random.Generator, count: int, mean_gap_s: float) -> FloatColumn:
    """Ascending times of a Poisson process, the first at 0."""
    gaps_s = rng.exponential(mean_gap_s, count)
    gaps_s[0] = 0.0
    submit_s: FloatColumn = np.cumsum(gaps_s)
    return np.round(submit_s)


def weekly_rates(peak_hour: float, amplitude: float, day_factors: Sequence[float]) -> FloatColumn:
    """Relative rates of the 168 hours of a week from Monday on: a sine over the day times a factor for the day."""
    hours = np.arange(24) + 0.5
    day: FloatColumn = 1.0 + amplitude * np.cos((hours - peak_hour) * (2.0 * np.pi / 24.0))
    week: FloatColumn = np.outer(np.asarray(day_factors, dtype=np.float64), day).ravel()
    return week


def draw_arrivals(rng: np.random.Generator, count: int, rates: FloatColumn, horizon_s: float) -> FloatColumn:
    """So many ascending times before ``horizon_s``, as a Poisson process with these hourly rates would have them.

    The rates start over after their last hour.
    """
    hours = max(int(np.ceil(horizon_s / _HOUR_S)), 1)
    edges_s = np.minimum(np.arange(hours + 1) * _HOUR_S, horizon_s)
    mass = np.concatenate(([0.0], np.cumsum(np.resize(rates, hours) * np.diff(edges_s))))
    submit_s: FloatColumn = np.interp(np.sort(rng.random(count)) * mass[-1], mass, edges_s)
    return np.floor(submit_s)


def names_of_codes(codes: IntColumn, names: Sequence[str]) -> list[str]:
    """The name behind each code."""
    texts = list(names)
    return [texts[code] for code in codes.tolist()]

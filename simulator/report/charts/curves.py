"""What the line charts show, as numbers: distributions, and resources in use over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.time_text import LOG_TICKS

MOST_STEPS = 600
"""Steps of a drawn distribution: more than a screen shows."""
USAGE_BINS = 240
"""Stretches of time over which use is averaged: a day of two months has four."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Part of the jobs (``part``) whose value is at most ``value_s``; both ascending, of equal length, at least 1."""

    value_s: FloatColumn
    part: FloatColumn


@dataclass(frozen=True, slots=True)
class UsageCurve:
    """Mean number of units in use between two edges; ``edges_s`` counts from the first submission and is one longer."""

    edges_s: FloatColumn
    mean: FloatColumn


def make_distribution(values_s: FloatColumn, most: int = MOST_STEPS) -> Distribution:
    """The empirical distribution; of more than ``most`` values, that many by even rank, the largest among them.

    NaN is left out; without any value the result is one step at 0.
    """
    known = np.sort(values_s[np.isfinite(values_s)])
    if not len(known):
        return Distribution(np.zeros(1), np.zeros(1))
    ranks = np.arange(len(known)) if len(known) <= most else np.linspace(0, len(known) - 1, most).round().astype(int)
    return Distribution(known[ranks], np.searchsorted(known, known[ranks], side="right") / len(known))


def step_corners(steps: Distribution, least: float = 0.0) -> list[tuple[float, float]]:
    """The line of a distribution, ``(seconds, part)``, from ``(least, 0)``; what is below ``least`` is shown there."""
    line = [(least, 0.0)]
    for value, part in zip(np.maximum(steps.value_s, least).tolist(), steps.part.tolist(), strict=True):
        line += [(value, line[-1][1]), (value, part)]
    return line


def log_bounds(distributions: Iterable[Distribution]) -> tuple[float, float]:
    """Limits of a logarithmic axis of time that shows all of them: from a tick of at least 1 s to beyond the largest."""
    known = list(distributions)
    smallest = min(float(d.value_s[0]) for d in known)
    low_s = max((tick for tick, _ in LOG_TICKS if tick <= smallest), default=LOG_TICKS[0][0])
    return low_s, max(1.05 * max(float(d.value_s[-1]) for d in known), 10 * low_s)


def usage_curve_of_run(outcome: SimulationOutcome, held: IntColumn, bins: int = USAGE_BINS) -> UsageCurve:
    """Resources in use from the first submission until nothing runs; ``held`` is by segment.

    O(s log s) in segments: the integral of use over time is piecewise linear between starts and ends.
    """
    parts, submit_s = outcome.segments, outcome.workload.submit_s
    first_s = float(submit_s.min()) if len(submit_s) else 0.0
    last_s = float(parts.end_s.max()) if len(parts.job) else first_s
    return usage_curve_of_intervals(parts.start_s, parts.end_s, held.astype(np.float64), (first_s, last_s), bins)


def usage_curve_of_intervals(
    start_s: FloatColumn, end_s: FloatColumn, held: FloatColumn, span_s: tuple[float, float], bins: int = USAGE_BINS
) -> UsageCurve:
    """What stretches of time hold together, between two times, in equal parts."""
    first_s, last_s = span_s
    edges_s = np.linspace(first_s, last_s if last_s > first_s else first_s + 1.0, bins + 1)
    knots_s, integral = _integral(start_s, end_s, held)
    mean = np.diff(np.interp(edges_s, knots_s, integral)) / np.diff(edges_s)
    return UsageCurve(edges_s - first_s, np.asarray(mean, dtype=np.float64))


def _integral(start_s: FloatColumn, end_s: FloatColumn, held: FloatColumn) -> tuple[FloatColumn, NDArray[np.float64]]:
    """Times at which use changes, and units x seconds used until each."""
    if not len(start_s):
        return np.zeros(1), np.zeros(1)
    times = np.concatenate((start_s, end_s))
    change = np.concatenate((held, -held))
    order = np.argsort(times, kind="stable")
    knots_s, busy = times[order], np.cumsum(change[order])
    return knots_s, np.concatenate(([0.0], np.cumsum(busy[:-1] * np.diff(knots_s))))

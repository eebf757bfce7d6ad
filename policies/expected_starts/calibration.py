"""How right earlier forecasts were, and what later ones have to be changed by so that they hold as often as they say.

Many possible futures of one plan know neither who will come and go first, nor what the policy will do next: their spread is
not the whole error. The rest shows in forecasts whose outcome is known: **conformalised quantile regression** (Romano,
Patterson and Candès, 2019), for each end of the interval by itself, in the logarithm of the wait. As jobs that wait side by
side are wrong together, and sites change, the part that may lie beyond an end follows what came of the last forecasts
(**adaptive conformal inference**, Gibbs and Candès, 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.expected_starts.forecast import QUANTILES, StartForecast
from slurm_soda.policies.snapshot import FloatColumn

INSTANT_S = 60.0
"""Starts so close to each other are as good as one: Slurm's backfill looks every half minute."""
WINDOW = 500
"""Newest forecasts with a known outcome that count: sites change."""
LEAST_OUTCOMES = 30
"""Before there are so many, forecasts are changed by"""
FIRST_SHIFT: FloatColumn = np.array([[-0.2], [0.25], [1.15]])
"""so much in the logarithm of the wait: the quantiles that calibration itself takes, of the first outcomes of generated
workloads (docs/expected-starts.md)."""
NEAREST = 100
"""Of the window, those of about as long a wait say how a forecast is changed: long ones are off by more."""
STEP = 0.01
"""How much one outcome changes the part of errors that may lie beyond an end."""


class StartOutcome(NamedTuple):
    """One forecast and what came of it, in seconds from the instant of the forecast."""

    drawn_s: tuple[float, float, float]
    """Quantiles of the futures, not changed by anything."""
    calibrated_s: tuple[float, float, float]
    """The same as people were told."""
    waited_s: float
    """Until the job started; or so far, where it waits for longer than was told."""

    @property
    def side(self) -> int:
        """-1: it started before the interval, 0: within, 1: after it."""
        return -int(self.waited_s < self.calibrated_s[0]) or int(self.waited_s > self.calibrated_s[2])


@dataclass(frozen=True, slots=True)
class IntervalScore:
    """How often intervals were right; ratios are NaN where nothing is known."""

    forecasts: int
    held_ratio: float
    earlier_ratio: float
    later_ratio: float

    @classmethod
    def of(cls, sides: Sequence[int]) -> IntervalScore:
        """Of :attr:`StartOutcome.side` each."""
        count = len(sides)
        held, earlier, later = (sides.count(side) / count if count else math.nan for side in (0, -1, 1))
        return cls(count, held, earlier, later)


class StartCalibration:
    """What to change forecasts by."""

    def __init__(self, outcomes: Sequence[StartOutcome]) -> None:
        """``outcomes``: the newest last; the last :data:`WINDOW` count."""
        newest = outcomes[-WINDOW:]
        self.score = IntervalScore.of([outcome.side for outcome in newest])
        """Of the intervals as they were told."""
        usable = [outcome for outcome in newest if math.isfinite(outcome.drawn_s[-1])]
        self._order: FloatColumn = np.zeros(1)
        self._shift = FIRST_SHIFT
        if len(usable) < LEAST_OUTCOMES:
            return
        drawn = _log(np.array([outcome.drawn_s for outcome in usable]))
        by_median = np.argsort(drawn[:, 1], kind="stable")
        self._order = drawn[by_median, 1]
        errors = (_log(np.array([outcome.waited_s for outcome in usable]))[:, None] - drawn)[by_median]
        near = min(NEAREST, len(errors))
        windows = np.lib.stride_tricks.sliding_window_view(errors, near, axis=0)
        below, beyond = _allowed_misses(newest)
        levels = (below, QUANTILES[1], 1.0 - beyond)
        self._shift = np.stack([np.quantile(windows[:, end], level, axis=-1) for end, level in enumerate(levels)])

    def apply(self, forecast: StartForecast) -> StartForecast:
        """The forecast as people are told it."""
        drawn = np.stack((forecast.low_s, forecast.median_s, forecast.high_s))
        windows = self._shift.shape[1]
        at = np.clip(np.searchsorted(self._order, _log(drawn[1])) - (len(self._order) - windows) // 2, 0, windows - 1)
        told = np.maximum.accumulate(np.maximum(np.exp(_log(drawn) + self._shift[:, at]) - INSTANT_S, 0.0), axis=0)
        return StartForecast(forecast.now_s, forecast.job_id, *told)


def _allowed_misses(outcomes: Sequence[StartOutcome]) -> tuple[float, float]:
    """Parts of errors that may lie below and beyond an interval: less than they should be where too many did so lately."""
    allowed = [QUANTILES[0], 1.0 - QUANTILES[-1]]
    for outcome in outcomes:
        if outcome.calibrated_s != outcome.drawn_s:
            for end, side in enumerate((-1, 1)):
                target = (QUANTILES[0], 1.0 - QUANTILES[-1])[end]
                allowed[end] = min(max(allowed[end] + STEP * (target - (outcome.side == side)), 0.0), 0.5)
    return allowed[0], allowed[1]


def _log(wait_s: FloatColumn) -> FloatColumn:
    logs: FloatColumn = np.log(wait_s + INSTANT_S)
    return logs

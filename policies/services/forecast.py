"""What load a service may see within the next minutes, from its own earlier days.

Each method says how high the load rises within the horizon after a minute, from earlier minutes alone. Which one is right
for a service, and how far off it is, is measured on the last days, each of them forecast from what was known before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from slurm_soda.policies.services.service import FloatColumn, IntColumn

DAY = 1440
"""Minutes."""
MOST_DAYS = 28
"""Older minutes say nothing."""
HELD_BACK_DAYS = 7
"""So many last days tell which method is right."""
QUANTILE = 0.8
"""Part of the held-back minutes after which the load did not exceed what was told as the most."""
_RECENT = 30
"""Minutes whose mean is the present level."""
_LEAST_JUDGED = 60
"""Minutes that a method must have forecast to be judged."""
_WIDEST = 2.0
_MOST_SHIFT = 4.0
"""How much higher or lower than on earlier days a day may be."""
_DAYS: Mapping[str, tuple[int, ...]] = {"yesterday": (1,), "days": (1, 2, 3, 4, 5, 6, 7), "weeks": (7, 14, 21)}
"""Methods by how many days they look back; what they find is scaled by the present level."""
METHODS = ("last", "trend", *_DAYS)


@dataclass(frozen=True, slots=True, eq=False)
class LoadHistory:
    """Load by minute, without gaps in the index."""

    start: int
    """First minute (Unix time / 60)."""
    qps: FloatColumn
    """Mean load of each minute; NaN where it was not reported."""

    @classmethod
    def of(cls, minute: IntColumn, qps: FloatColumn) -> LoadHistory:
        """From minutes in any order, of which the last :data:`MOST_DAYS` days count; of equal ones the last."""
        if not len(minute):
            return cls(0, np.zeros(0))
        last = int(minute.max())
        start = max(int(minute.min()), last - MOST_DAYS * DAY + 1)
        dense, kept = np.full(last - start + 1, np.nan), minute >= start
        dense[minute[kept] - start] = qps[kept]
        return cls(start, dense)

    def with_minute(self, minute: int, qps: float) -> LoadHistory:
        """The same up to this minute, and this one as its last: what is later was by a clock that somebody set back."""
        start = max(self.start, minute - MOST_DAYS * DAY + 1) if self.start <= minute and len(self.qps) else minute
        dense = np.full(minute - start + 1, np.nan)
        known = self.qps[start - self.start : minute - self.start] if start < self.end else self.qps[:0]
        dense[: len(known)] = known
        dense[-1] = qps
        return LoadHistory(start, dense)

    @property
    def end(self) -> int:
        """The minute after the last."""
        return self.start + len(self.qps)

    def between(self, first: int, end: int) -> FloatColumn:
        """Loads of some minutes, as far as they are known."""
        low, high = max(first - self.start, 0), max(end - self.start, 0)
        found = self.qps[low:high]
        return found[~np.isnan(found)]


@dataclass(frozen=True, slots=True)
class MethodError:
    """How a method did on held-back minutes."""

    method: str
    error_ratio: float
    """Mean absolute error over the mean load; infinite: not judged yet."""
    most_ratio: float = 1.0
    """The load stayed below so many times what was expected, in :data:`QUANTILE` of the minutes; 1 to 2."""


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Which methods are right for a service, the best first."""

    horizon: int
    """Minutes."""
    methods: tuple[MethodError, ...]
    small_qps: float = 1e-9
    """So little that a quotient with it does not run away at night."""


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """What is expected of the minutes within the horizon."""

    expected_qps: float = math.nan
    """The highest load; NaN: nothing is known."""
    most_qps: float = math.nan
    """What it stays below with a probability of :data:`QUANTILE`, by the held-back days."""
    error_ratio: float = math.inf
    """Mean absolute error over the mean load, as it was on held-back days; infinite: not judged yet."""
    method: str = ""


def learn_load(history: LoadHistory, horizon: int) -> LoadModel:
    """Judge the methods on the last days; O(methods x minutes), to be done once in an hour or so.

    Args:
        history: of one service.
        horizon: minutes.
    """
    load = history.qps
    highest, told = _highest_after(load, horizon), _all_told(load, horizon)
    judged = np.zeros(len(load), dtype=np.bool_)
    judged[-HELD_BACK_DAYS * DAY :] = True
    judged &= ~np.isnan(highest)
    able = {name: found for name, found in told.items() if (judged & ~np.isnan(found)).sum() >= _LEAST_JUDGED}
    for found in able.values():
        judged &= ~np.isnan(found)
    errors = [_judge(name, found[judged], highest[judged]) for name, found in able.items()]
    errors.sort(key=lambda one: (one.error_ratio, METHODS.index(one.method)))
    rest = [MethodError(name, math.inf) for name in METHODS if name not in able]
    return LoadModel(horizon, (*errors, *rest), _small(load))


def forecast_load(history: LoadHistory, model: LoadModel, minute: int) -> LoadForecast:
    """What is expected of the minutes from ``minute`` on; O(horizon).

    Args:
        history: up to the minute before; what is later in it does not count.
        model: of :func:`learn_load`, perhaps of some hours before.
        minute: Unix time / 60.
    """
    for one in model.methods:
        expected = _tell(one.method, history, minute, model.horizon, model.small_qps)
        if not math.isnan(expected):
            return LoadForecast(expected, expected * one.most_ratio, one.error_ratio, one.method)
    return LoadForecast()


def _judge(method: str, told: FloatColumn, highest: FloatColumn) -> MethodError:
    """A method against what happened."""
    if not len(told):
        return MethodError(method, math.inf)
    scale = float(highest.mean())
    error = float(np.abs(told - highest).mean()) / scale if scale > 0 else 0.0
    some = told > 0
    ratio = float(np.quantile(highest[some] / told[some], QUANTILE)) if some.any() else 1.0
    return MethodError(method, error, min(max(ratio, 1.0), _WIDEST))


def _all_told(load: FloatColumn, horizon: int) -> dict[str, FloatColumn]:
    """What each method says in every minute, from the minutes before; NaN: nothing."""
    level, early = _mean_before(load, _RECENT), _mean_before(load, 2 * _RECENT)
    last = _highest_before(load, horizon)
    # The mean of the last hour is that of half an hour before: twice the difference is the slope of half an hour.
    slope = 2.0 * (level - early) / _RECENT
    told = {"last": last, "trend": np.maximum(last, level + slope * (_RECENT / 2 + horizon))}
    highest, small = _highest_after(load, horizon), _small(load)
    for name, days in _DAYS.items():
        then = _mean_of([_shifted(highest, day * DAY) for day in days])
        level_then = _mean_of([_shifted(level, day * DAY) for day in days])
        told[name] = then * _shift(level, level_then, small)
    return told


def _tell(method: str, history: LoadHistory, minute: int, horizon: int, small: float) -> float:
    """The same as in :func:`_all_told`, of one minute."""
    mean = partial(_mean_between, history)
    last = history.between(minute - horizon, minute)
    if method not in _DAYS:
        highest = float(last.max()) if len(last) else math.nan
        if method == "last":
            return highest
        level = mean(minute - _RECENT, minute)
        slope = 2.0 * (level - mean(minute - 2 * _RECENT, minute)) / _RECENT
        return max(highest, level + slope * (_RECENT / 2 + horizon)) if not math.isnan(slope) else math.nan
    at = [minute - day * DAY for day in _DAYS[method]]
    then = [history.between(one, min(one + horizon, minute)) for one in at]
    highest = _mean([float(one.max()) for one in then if len(one)])
    level_then = _mean([one for one in (mean(each - _RECENT, each) for each in at) if not math.isnan(one)])
    level = mean(minute - _RECENT, minute)
    return highest * float(_shift(np.array([level]), np.array([level_then]), small)[0])


def _shift(level: FloatColumn, then: FloatColumn, small: float) -> FloatColumn:
    """How much higher the load is than on earlier days at this time; 1 where it is not known."""
    found: FloatColumn = np.nan_to_num((level + small) / (then + small), nan=1.0)
    return np.clip(found, 1.0 / _MOST_SHIFT, _MOST_SHIFT)


def _small(load: FloatColumn) -> float:
    """:attr:`LoadModel.small_qps`."""
    known = load[~np.isnan(load)]
    return 0.01 * float(known.mean()) + 1e-9 if len(known) else 1e-9


def _highest_before(load: FloatColumn, minutes: int) -> FloatColumn:
    """Of each minute: the highest load of so many before it."""
    padded = np.concatenate((np.full(minutes, np.nan), load))[: len(load) + minutes - 1]
    return _window_highest(padded, minutes) if len(load) else load


def _highest_after(load: FloatColumn, minutes: int) -> FloatColumn:
    """Of each minute: the highest load of so many from it on; NaN where the last of them are not known yet."""
    padded = np.concatenate((load, np.full(minutes - 1, np.nan)))
    found = _window_highest(padded, minutes) if len(load) else load
    found[max(len(load) - minutes + 1, 0) :] = np.nan
    return found


def _window_highest(padded: FloatColumn, minutes: int) -> FloatColumn:
    low = np.where(np.isnan(padded), -np.inf, padded)
    highest: FloatColumn = sliding_window_view(low, minutes).max(axis=1)
    highest[np.isneginf(highest)] = np.nan
    return highest


def _mean_before(load: FloatColumn, minutes: int) -> FloatColumn:
    """Of each minute: the mean of the known loads of so many before it; NaN without any."""
    known = ~np.isnan(load)
    sums = np.concatenate(([0.0], np.cumsum(np.where(known, load, 0.0))))
    counts = np.concatenate(([0], np.cumsum(known)))
    at = np.arange(len(load))
    first = np.maximum(at - minutes, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatColumn = (sums[at] - sums[first]) / (counts[at] - counts[first])
    return found


def _mean_between(history: LoadHistory, first: int, end: int) -> float:
    found = history.between(first, end)
    return float(found.mean()) if len(found) else math.nan


def _shifted(column: FloatColumn, minutes: int) -> FloatColumn:
    """What was so many minutes before."""
    missing = np.full(min(minutes, len(column)), np.nan)
    return np.concatenate((missing, column[: max(len(column) - minutes, 0)]))


def _mean_of(columns: Sequence[FloatColumn]) -> FloatColumn:
    """The mean of those that are known."""
    table = np.stack(columns)
    known = ~np.isnan(table)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatColumn = np.where(known, table, 0.0).sum(axis=0) / known.sum(axis=0)
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan

"""The forecast of a service's load from its own days."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.services.forecast import (
    DAY,
    METHODS,
    MOST_DAYS,
    LoadHistory,
    _all_told,
    _small,
    _tell,
    forecast_load,
    learn_load,
)

HORIZON = 10
MONDAY = 20_454 * DAY
"""A first minute of a day."""


def wave(days: float, *, low: float = 20.0, high: float = 200.0) -> np.ndarray:
    """Equal days: low at midnight, high at noon."""
    at = np.arange(round(days * DAY))
    return low + (high - low) * 0.5 * (1 - np.cos(2 * np.pi * at / DAY))


def history_of(qps: np.ndarray) -> LoadHistory:
    return LoadHistory(MONDAY, qps)


def error_on_next_day(qps: np.ndarray, known_days: int) -> float:
    """Mean absolute error over the mean, of a day that was not learnt from, every 10 minutes."""
    known = known_days * DAY
    model = learn_load(history_of(qps[:known]), HORIZON)
    told, found = [], []
    for at in range(known, min(known + DAY, len(qps) - HORIZON), 10):
        told.append(forecast_load(history_of(qps[:at]), model, MONDAY + at).expected_qps)
        found.append(qps[at : at + HORIZON].max())
    return float(np.abs(np.array(told) - found).mean() / np.mean(found))


def test_nothing_known_is_nan() -> None:
    empty = LoadHistory.of(np.zeros(0, dtype=np.int64), np.zeros(0))
    found = forecast_load(empty, learn_load(empty, HORIZON), MONDAY)
    assert math.isnan(found.expected_qps)
    assert math.isnan(found.most_qps)
    assert (found.error_ratio, found.method) == (math.inf, "")
    silent = history_of(np.full(3 * DAY, np.nan))
    assert math.isnan(forecast_load(silent, learn_load(silent, HORIZON), silent.end).most_qps)


def test_equal_days_are_forecast_before_the_rise() -> None:
    qps = wave(3)
    at = 2 * DAY + 6 * 60
    history = history_of(qps[:at])
    model = learn_load(history, HORIZON)
    found = forecast_load(history, model, MONDAY + at)
    assert found.expected_qps == pytest.approx(qps[at : at + HORIZON].max(), rel=0.02)
    assert found.expected_qps > qps[at - 1]
    assert found.error_ratio < 0.02
    assert found.most_qps >= found.expected_qps


def test_on_a_first_day_the_last_minutes_and_their_trend_tell() -> None:
    qps = wave(1)[: 8 * 60]
    history = history_of(qps)
    found = forecast_load(history, learn_load(history, HORIZON), history.end)
    assert found.method == "trend"
    assert found.expected_qps == pytest.approx(wave(1)[8 * 60 : 8 * 60 + HORIZON].max(), rel=0.05)
    young = history_of(np.array([5.0, 7.0, 6.0]))
    first = forecast_load(young, learn_load(young, HORIZON), young.end)
    assert (first.expected_qps, first.most_qps, first.method) == (7.0, 7.0, "last")
    assert first.error_ratio == math.inf


def test_weekends_are_told_apart_after_a_week() -> None:
    days = [wave(1, high=200.0) if day % 7 < 5 else wave(1, low=15.0, high=40.0) for day in range(22)]
    qps = np.concatenate(days)
    assert learn_load(history_of(qps[: 21 * DAY]), HORIZON).methods[0].method == "weeks"
    assert error_on_next_day(qps, 21) < 0.02


def test_growth_is_followed() -> None:
    grown = np.concatenate([wave(1) * 1.2**day for day in range(8)])
    assert error_on_next_day(grown, 7) < 0.03


def test_gaps_are_bridged() -> None:
    qps = wave(6)
    rng = np.random.default_rng(7)
    qps[rng.random(len(qps)) < 0.3] = np.nan
    qps[2 * DAY + 300 : 3 * DAY + 700] = np.nan
    at = 5 * DAY + 600
    history = history_of(qps[:at])
    found = forecast_load(history, learn_load(history, HORIZON), MONDAY + at)
    assert found.expected_qps == pytest.approx(wave(6)[at : at + HORIZON].max(), rel=0.1)


def test_its_own_error_is_what_a_new_day_shows() -> None:
    rng = np.random.default_rng(3)
    qps = wave(15) * rng.lognormal(0.0, 0.2, 15 * DAY)
    model = learn_load(history_of(qps[: 14 * DAY]), HORIZON)
    assert error_on_next_day(qps, 14) == pytest.approx(model.methods[0].error_ratio, rel=0.2)


def test_the_most_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    qps = wave(12) * rng.lognormal(0.0, 0.3, 12 * DAY)
    model = learn_load(history_of(qps[: 10 * DAY]), HORIZON)
    held = [
        qps[at : at + HORIZON].max() <= forecast_load(history_of(qps[:at]), model, MONDAY + at).most_qps
        for at in range(10 * DAY, 12 * DAY - HORIZON, 7)
    ]
    assert 0.72 <= np.mean(held) <= 0.88


def test_only_the_last_weeks_count_and_minutes_may_come_in_any_order() -> None:
    minute = np.arange(MONDAY, MONDAY + 40 * DAY)
    history = LoadHistory.of(minute[::-1].copy(), np.ones(len(minute)))
    assert (history.end - history.start, history.end) == (MOST_DAYS * DAY, MONDAY + 40 * DAY)
    double = LoadHistory.of(np.array([5, 3, 5]), np.array([1.0, 2.0, 3.0]))
    assert double.start == 3
    assert double.qps.tolist()[::2] == [2.0, 3.0]
    assert np.isnan(double.qps[1])


@given(st.integers(0, 2**32 - 1), st.sampled_from([30, 700, 3 * DAY, 9 * DAY]), st.sampled_from([1, 5, 10]))
def test_what_is_judged_is_what_is_told(seed: int, length: int, horizon: int) -> None:
    rng = np.random.default_rng(seed)
    qps = rng.gamma(2.0, 10.0, length)
    qps[rng.random(length) < 0.2] = np.nan
    told = _all_told(qps, horizon)
    # What a method says of a minute must not depend on later ones, but for the scale of what counts as small.
    for at in rng.integers(0, length, 5).tolist():
        for method in METHODS:
            one = _tell(method, LoadHistory(0, qps), at, horizon, _small(qps))
            assert one == pytest.approx(told[method][at], rel=1e-9, nan_ok=True)


def test_a_minute_more_is_the_same_as_all_anew() -> None:
    """Also over gaps, beyond the most days that count, and where the clock was set back."""
    minutes = [5, 6, 9, 9, DAY, MOST_DAYS * DAY + 4, MOST_DAYS * DAY + 8, 3 * MOST_DAYS * DAY]
    grown = LoadHistory(minutes[0], np.array([0.0]))
    for count, minute in enumerate(minutes[1:], 2):
        grown = grown.with_minute(minute, count - 1.0)
        anew = LoadHistory.of(np.array(minutes[:count]), np.arange(float(count)))
        known = anew.qps[np.argmax(~np.isnan(anew.qps)) :]
        np.testing.assert_array_equal(grown.qps[np.argmax(~np.isnan(grown.qps)) :], known)
        assert (grown.end, len(grown.qps) <= MOST_DAYS * DAY) == (anew.end, True)
    back = history_of(np.arange(10.0)).with_minute(MONDAY + 4, 40.0)
    assert (back.start, back.qps.tolist()) == (MONDAY, [0.0, 1.0, 2.0, 3.0, 40.0])
    assert back.with_minute(MONDAY - 9, 7.0).qps.tolist() == [7.0]

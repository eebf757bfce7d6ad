"""The load that a decision counts with: a mean of the last minute, and at once a higher one where it rose."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.recent_load import RecentLoad
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.services.service_table import build_service_table
from slurm_soda.daemon.settings.services import ServicesSettings
from tests.daemon.services.service_site import report


def told(loads: list[float], every_s: float = 1.0) -> list[float]:
    """What is counted after each report."""
    recent = RecentLoad()
    return [recent.add(load_qps, 1000.0 + every_s * at) for at, load_qps in enumerate(loads)]


@pytest.mark.parametrize("mean", [0.2, 5.0, 60.0, 800.0])
def test_the_noise_of_single_seconds_is_no_load(mean: float) -> None:
    """Of 3600 reports of a steady load, counted as chance has them, none makes it another load."""
    loads = np.random.default_rng(7).poisson(mean, 3600).astype(float).tolist()
    counted = told(loads)[60:]
    assert max(counted) <= mean + 5.0 * np.sqrt(mean / 60.0)
    assert max(loads[60:]) > mean + 2.5 * np.sqrt(mean)
    assert np.mean(counted) == pytest.approx(mean, rel=0.1)


def test_a_burst_counts_with_its_first_report() -> None:
    counted = told([10.0] * 120 + [100.0] * 3)
    assert counted[119] == 10.0
    assert counted[120:] == [100.0] * 3


def test_a_small_rise_counts_after_seconds_and_one_below_a_fifth_within_the_noise_of_a_minute() -> None:
    counted = told([400.0] * 120 + [560.0] * 60)
    assert counted[120] < 410.0
    assert counted[135] > 540.0
    counted = told([400.0] * 120 + [440.0] * 60)
    assert counted[125] == pytest.approx(403.0, abs=2.0)
    assert max(counted) < 400.0 + 2.5 * 40.0, "within the noise of seconds a step looks like a slope"
    assert counted[-1] == 440.0


@pytest.mark.parametrize("every_s", [1.0, 2.0, 5.0])
def test_a_steady_rise_counts_with_what_it_is_half_a_minute_later(every_s: float) -> None:
    at_s = np.arange(0.0, 120.0, every_s)
    counted = told((10.0 + 0.5 * at_s).tolist(), every_s)
    assert counted[-1] == pytest.approx(10.0 + 0.5 * (at_s[-1] + 30.0))
    noisy = np.random.default_rng(3).poisson((10.0 + 0.5 * at_s) * every_s) / every_s
    assert told(noisy.tolist(), every_s)[-1] == pytest.approx(counted[-1], rel=0.2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("low", "high"), [(8.0, 80.0), (100.0, 160.0)])
def test_a_step_is_no_steady_rise(seed: int, low: float, high: float) -> None:
    """Whoever drew a line through it would start instances for a load that never comes."""
    loads = np.random.default_rng(seed).poisson([low] * 60 + [high] * 90)
    counted = told(loads.astype(float).tolist())
    assert max(counted) <= high + 4.0 * np.sqrt(high)


def test_a_load_that_falls_steadily_counts_as_it_was() -> None:
    counted = told([100.0 - 0.5 * second for second in range(120)])
    assert counted[-1] == pytest.approx(100.0 - 0.5 * (119 - 29.5), abs=1.0)


def test_a_load_that_fell_counts_until_the_minute_is_over() -> None:
    counted = told([100.0] * 120 + [10.0] * 60)
    assert counted[150] > 50.0
    assert counted[179] == 10.0


def test_without_a_cool_down_the_newest_report_counts_alone_when_the_load_falls() -> None:
    recent = RecentLoad()
    for second in range(60):
        recent.add(100.0, float(second), 0.0)
    assert recent.add(5.0, 60.0, 0.0) == 5.0


def test_reports_before_a_pause_do_not_count() -> None:
    recent = RecentLoad()
    for second in range(60):
        recent.add(100.0, float(second))
    assert recent.add(1.0, 200.0) == 1.0


def test_decisions_count_with_it() -> None:
    board = ServiceBoard()
    for second in range(60):
        load_qps = 12.0 if second % 2 else 8.0
        board.take("alice", report(load_qps=load_qps), Instant(1.7e9 + second, float(second)))
    table = build_service_table(
        board.known(), {}, steady_s=60.0, settings=ServicesSettings(), low_since_s={}, forecast_qps={}, draining=()
    )
    assert table.load_qps.tolist() == [10.0]

"""Times at which queries are due."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.services.load.arrivals import (
    PatternError,
    burst_rate,
    constant_rate,
    diurnal_rate,
    even_times,
    random_times,
    read_times,
)


def test_even_times_have_one_distance() -> None:
    assert list(even_times(4.0, 1.0)) == [0.0, 0.25, 0.5, 0.75]


@given(st.floats(0.1, 50.0), st.floats(0.1, 20.0), st.integers(0, 2**32))
def test_random_times_ascend_stay_within_and_repeat(qps: float, duration_s: float, seed: int) -> None:
    times = list(random_times(constant_rate(qps), qps, duration_s, seed))
    assert times == sorted(times) == list(random_times(constant_rate(qps), qps, duration_s, seed))
    assert all(0.0 < at_s < duration_s for at_s in times)


def test_a_poisson_process_has_its_rate_and_its_spread() -> None:
    """Of 10000 distances the mean and, for exponential ones, a standard deviation as large."""
    times = list(random_times(constant_rate(100.0), 100.0, 100.0, 1))
    distances = [after - before for before, after in itertools.pairwise(times)]
    mean = sum(distances) / len(distances)
    spread = (sum((one - mean) ** 2 for one in distances) / len(distances)) ** 0.5
    assert mean == pytest.approx(0.01, rel=0.05)
    assert spread == pytest.approx(mean, rel=0.05)


def test_a_day_begins_and_ends_at_night() -> None:
    rate = diurnal_rate(10.0, 90.0, 24.0)
    assert [rate(at_s) for at_s in (0.0, 6.0, 12.0, 24.0)] == pytest.approx([10.0, 50.0, 90.0, 10.0])
    times = list(random_times(rate, 90.0, 24.0, 1))
    # The integrals of the rate over the 4 hours around noon and of the first 4.
    assert sum(10.0 <= at_s < 14.0 for at_s in times) == pytest.approx(352.8, rel=0.2)
    assert sum(at_s < 4.0 for at_s in times) == pytest.approx(67.7, rel=0.3)


def test_bursts_come_at_the_end_of_each_stretch() -> None:
    rate = burst_rate(5.0, 100.0, 10.0, 2.0)
    assert [rate(at_s) for at_s in (0.0, 7.9, 8.0, 9.9, 10.0, 18.5)] == [5.0, 5.0, 100.0, 100.0, 5.0, 100.0]


def test_a_file_is_replayed_from_its_first_time(tmp_path: Path) -> None:
    file = tmp_path / "times"
    file.write_text("# seconds\n100.5\n\n103.5 # later\n101\n")
    assert read_times(file) == [0.0, 0.5, 3.0]
    assert read_times(file, speed=2.0) == [0.0, 0.25, 1.5]


@pytest.mark.parametrize(
    ("text", "told"), [("1\nnan\n", "line 2: 'nan'"), ("a\n", "line 1: 'a'"), ("#\n", "has no times")]
)
def test_a_file_without_times_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "times").write_text(text)
    with pytest.raises(PatternError, match=told):
        read_times(tmp_path / "times")
    with pytest.raises(PatternError, match="cannot be read"):
        read_times(tmp_path / "none")

"""What the charts show, as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.simulator.report.charts.curves import log_bounds, make_distribution, step_corners, usage_curve_of_run

from .outcomes import WORKED, outcome

VALUES = st.lists(st.floats(0, 1e7), min_size=1, max_size=60)


def test_steps_of_a_distribution() -> None:
    steps = make_distribution(np.array([30.0, 10.0, np.nan]))
    assert step_corners(steps) == [(0.0, 0.0), (10.0, 0.0), (10.0, 0.5), (30.0, 0.5), (30.0, 1.0)]
    assert step_corners(steps, least=20.0) == [(20.0, 0.0), (20.0, 0.0), (20.0, 0.5), (30.0, 0.5), (30.0, 1.0)]


def test_no_values_is_one_step_at_nothing() -> None:
    assert step_corners(make_distribution(np.array([np.nan])), 1.0) == [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0)]


@given(VALUES, st.integers(2, 80))
def test_a_distribution_is_exact_where_it_steps(values: list[float], most: int) -> None:
    column = np.array(values)
    steps = make_distribution(column, most)
    assert len(steps.value_s) <= max(most, len(values) if len(values) <= most else 0)
    assert steps.value_s[-1] == column.max()
    assert steps.part[-1] == 1.0
    for value, part in zip(steps.value_s, steps.part, strict=True):
        assert part == pytest.approx(np.mean(column <= value))


@given(VALUES)
def test_a_logarithmic_axis_holds_all_values_from_a_second_on(values: list[float]) -> None:
    low_s, high_s = log_bounds([make_distribution(np.array(values))])
    assert 1 <= low_s <= max(1.0, min(values))
    assert high_s >= max(values)
    assert high_s >= 10 * low_s


def test_use_over_time_is_the_mean_of_each_bin() -> None:
    found = usage_curve_of_run(run := outcome(WORKED), run.segments.gpus, bins=5)
    assert found.edges_s.tolist() == [0, 10, 20, 30, 40, 50]
    assert found.mean.tolist() == pytest.approx([1, 0, 2, 1, 1])
    halves = usage_curve_of_run(run, run.segments.gpus, bins=2)
    assert halves.mean.tolist() == pytest.approx([20 / 25, 30 / 25])


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 50), st.integers(0, 8)), max_size=20),
    st.integers(1, 40),
)
def test_use_over_time_loses_no_gpu_second(rows: list[tuple[int, int, int, int]], bins: int) -> None:
    jobs = [
        {"submit_s": submit, "gpus": gpus, "runs": [(submit + wait, submit + wait + took)]}
        for submit, wait, took, gpus in rows
    ]
    run = outcome(jobs, cluster="100x8")
    found = usage_curve_of_run(run, run.segments.gpus, bins)
    held = sum(gpus * took for _, _, took, gpus in rows)
    assert (found.mean * np.diff(found.edges_s)).sum() == pytest.approx(held, abs=1e-6)
    assert (found.mean >= -1e-9).all()


def test_use_counts_from_the_first_submission() -> None:
    run = outcome([{"submit_s": 100, "runs": [(110, 120)]}])
    found = usage_curve_of_run(run, run.segments.gpus, bins=2)
    assert found.edges_s.tolist() == [0, 10, 20]
    assert found.mean.tolist() == [0, 1]

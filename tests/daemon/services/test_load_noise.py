"""Chance, of single queries or of clients that send several at once, is neither a rise nor a burst."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.services.recent_load import RecentLoad


def told(loads: list[float], at_s: list[float] | None = None) -> list[float]:
    """What is counted after each report; one a second unless ``at_s`` says when."""
    recent = RecentLoad()
    return [recent.add(load, 1000.0 + at) for at, load in zip(at_s or range(len(loads)), loads, strict=True)]


@pytest.mark.parametrize("mean", [1.0, 4.0, 40.0])
def test_an_hour_of_independent_queries_never_counts_as_a_burst(mean: float) -> None:
    """The tail of few queries is longer than that of a normal distribution with their variance."""
    loads = np.random.default_rng(1).poisson(mean, 3660).astype(float).tolist()
    assert max(told(loads)[60:]) <= mean + 5.0 * np.sqrt(mean / 60.0)


@pytest.mark.parametrize(("mean", "at_once"), [(4.0, 4), (40.0, 4), (40.0, 10), (400.0, 10)])
def test_clients_that_send_several_queries_at_once_make_no_rise(mean: float, at_once: int) -> None:
    """Such a load varies more than chance makes of as many single queries, and so it was in the minute before."""
    loads = at_once * np.random.default_rng(1).poisson(mean / at_once, 1860).astype(float)
    assert max(told(loads.tolist())[60:]) <= mean + 5.0 * np.sqrt(at_once * mean / 60.0)


def test_a_burst_counts_at_once_however_large_and_until_the_minute_has_it() -> None:
    for low, high, every_s in ((1.0, 100.0, 1), (1.0, 1e5, 1), (4.0, 80.0, 2), (1.0, 1e5, 2)):
        at_s = [float(at) for at in range(0, 180, every_s)]
        counted = told([low if at < 100 else high for at in at_s], at_s)
        after = [load for at, load in zip(at_s, counted, strict=True) if at >= 100]
        assert min(after) >= high / 1.2, (low, high, every_s)


def test_a_step_while_the_router_was_not_heard_is_no_steady_rise() -> None:
    """Reports of 15 s, none for 30 s, and reports of 15 s: a line goes through both ends of any step."""
    at_s = [*range(15), *range(45, 60)]
    counted = told([40.0] * 15 + [80.0] * 15, [float(at) for at in at_s])
    assert max(counted) <= 80.0


@given(
    st.lists(
        st.tuples(st.sampled_from([-0.1, 0.0, 0.2, 1.0, 2.0, 5.0, 40.0]), st.floats(0.0, 1e9) | st.integers(0, 50)),
        min_size=1,
        max_size=90,
    ),
    st.sampled_from([0.0, 12.0, 60.0]),
)
def test_whatever_is_reported_counts_as_a_load_that_was_reported_or_rises_to(
    reports: list[tuple[float, float]], over_s: float
) -> None:
    """Reports of a second thread may be a moment older; a line through half a minute at least doubles a load at most."""
    recent, at_s = RecentLoad(), 1000.0
    loads: list[float] = []
    for passed_s, load in reports:
        at_s += passed_s
        loads.append(float(load))
        counted = recent.add(loads[-1], at_s, over_s)
        assert min(loads) * (1.0 - 1e-9) <= counted <= 5.0 * max(loads) * (1.0 + 1e-9)

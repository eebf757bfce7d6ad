"""Ranks of remaining run times, against the definition and against the orders that they become."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.gittins_rank import find_ranks
from slurm_soda.policies.run_times.remaining_time_curve import BINS, EDGES_S, find_bins
from slurm_soda.policies.snapshot import FloatColumn

MIDDLES_S = np.sqrt(np.maximum(EDGES_S[:-1], 1 / 1.2) * EDGES_S[1:])
UNIFORM = np.full(BINS, 1.0 / BINS)


def peak(run_s: float, rest: float = 1e-9) -> FloatColumn:
    """Nearly all run times are in one bin."""
    found = np.full(BINS, rest / BINS)
    found[find_bins(np.array([run_s]))[0]] += 1.0 - rest
    return found


def rank_curve(
    probability: FloatColumn, cost_s: float, stops: bool = True, worked_s: FloatColumn = EDGES_S
) -> FloatColumn:
    """The rank after each of these times of work."""
    jobs = len(worked_s)
    expected = ExpectedRunTimes(probability[None], np.zeros(jobs, dtype=np.int64), worked_s)
    return find_ranks(expected, np.ones(jobs), np.zeros(jobs), np.full(jobs, cost_s), np.full(jobs, stops))


def by_definition(probability: FloatColumn, worked_s: float, cost_s: float) -> float:
    """The least of (c + E[min(X - a, D)]) / P(X - a <= D) over all D that end with a bin, term by term."""
    at = int(find_bins(np.array([worked_s]))[0])
    low_s, high_s = max(EDGES_S[at], 1 / 1.2), EDGES_S[at + 1]
    here = probability[at] * np.log(high_s / max(worked_s, low_s)) / np.log(high_s / low_s)
    left = np.concatenate(([here], probability[at + 1 :]))
    middles_s = np.concatenate(([np.sqrt(max(worked_s, low_s) * high_s)], MIDDLES_S[at + 1 :])) - worked_s
    best = np.inf
    for count in range(1, len(left) + 1):
        ends = left[:count]
        work_s = (ends * middles_s[:count]).sum() + left[count:].sum() * (EDGES_S[at + count] - worked_s)
        best = min(best, (cost_s * left.sum() + work_s) / ends.sum())
    return float(best)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=BINS, max_size=BINS),
    st.integers(0, BINS - 1),
    st.floats(0.0, 0.99),
    st.floats(0, 1000),
)
def test_is_the_definition(weights: list[float], at: int, share: float, cost_s: float) -> None:
    probability = np.array(weights) / sum(weights)
    worked_s = float(EDGES_S[at] + share * (EDGES_S[at + 1] - EDGES_S[at]))
    found = rank_curve(probability, cost_s, worked_s=np.array([worked_s]))[0]
    assert found == pytest.approx(max(by_definition(probability, worked_s, cost_s), 1.0))


@pytest.mark.parametrize("run_s", [50.0, 3600.0, 86_400.0])
def test_who_is_close_to_the_end_that_all_its_like_came_to_goes_on_to_it(run_s: float) -> None:
    """It ranks before those that have all of it ahead for as long as it may still end where they did."""
    end_s = EDGES_S[find_bins(np.array([run_s]))[0] + 1]
    ranks = rank_curve(peak(run_s, rest=1e-4), 0.0, worked_s=end_s * np.array([0.0, 0.7, 0.9, 0.95, 0.98]))
    assert (ranks[1:] < 0.6 * ranks[0]).all()
    assert rank_curve(peak(run_s, rest=1e-4), 0.0, worked_s=np.array([end_s]))[0] > ranks[0]


def test_a_run_time_that_is_known_ranks_by_what_is_left() -> None:
    curve = rank_curve(peak(10_000.0), 0.0)
    for at in find_bins(np.array([1.0, 100.0, 5000.0])).tolist():
        middle_s = MIDDLES_S[find_bins(np.array([10_000.0]))[0]]
        assert curve[at] == pytest.approx(middle_s - EDGES_S[at], rel=0.01)


@pytest.mark.parametrize("cost_s", [0.0, 30.0, 600.0])
def test_where_nothing_is_known_the_order_is_least_attained_service(cost_s: float) -> None:
    # Beyond two months the year at which distributions end comes near.
    until = find_bins(np.array([60 * 86_400.0]))[0]
    assert (np.diff(rank_curve(UNIFORM, cost_s)[1:until]) > 0).all()


@given(st.lists(st.floats(0.01, 1.0), min_size=BINS, max_size=BINS), st.floats(0, 1000), st.floats(0, 1000))
def test_a_dearer_start_never_ranks_before_a_cheaper_one(weights: list[float], one_s: float, other_s: float) -> None:
    probability = np.array(weights) / sum(weights)
    cheap, dear = rank_curve(probability, min(one_s, other_s)), rank_curve(probability, max(one_s, other_s))
    assert (dear >= cheap - 1e-6 * cheap).all()


def test_ranks_of_jobs_by_what_is_known_of_each() -> None:
    expected = ExpectedRunTimes(
        np.stack((peak(1000.0), UNIFORM)), np.array([0, 1, -1, -1]), np.array([0.0, 100.0, 0.0, 0.0])
    )
    remaining_s, executed_s = np.array([500.0, 500.0, 700.0, np.nan]), np.array([0.0, 100.0, 50.0, 100.0])
    cost_s, stops = np.array([0.0, 0.0, 30.0, 0.0]), np.ones(4, dtype=np.bool_)
    ranks = find_ranks(expected, remaining_s, executed_s, cost_s, stops)
    assert ranks[0] == pytest.approx(1000.0, rel=0.1)
    assert ranks[2] == 730.0
    assert ranks[3] == pytest.approx(ranks[1])


def test_without_distributions_remaining_times_decide() -> None:
    remaining_s, executed_s, stops = np.array([10.0, np.nan]), np.array([0.0, 1000.0]), np.ones(2, dtype=np.bool_)
    ranks = find_ranks(ExpectedRunTimes(), remaining_s, executed_s, np.zeros(2), stops)
    assert ranks[0] == 10.0
    assert ranks[1] > 1000.0


@given(st.lists(st.floats(0.01, 1.0), min_size=BINS, max_size=BINS), st.integers(0, BINS - 1), st.floats(0, 1000))
def test_a_job_that_nobody_may_stop_ranks_by_all_that_is_expected_of_it(
    weights: list[float], at: int, cost_s: float
) -> None:
    probability = np.array(weights) / sum(weights)
    left_s = (probability[at:] * (MIDDLES_S[at:] - EDGES_S[at])).sum() / probability[at:].sum()
    assert rank_curve(probability, cost_s, stops=False)[at] == pytest.approx(max(cost_s + left_s, 1.0))


def test_of_two_alike_only_the_one_that_may_be_stopped_ranks_by_its_short_runs() -> None:
    expected = ExpectedRunTimes(((0.5 * peak(100.0) + 0.5 * peak(1e6))[None]), np.array([0, 0]), np.array([0.0, 0.0]))
    ranks = find_ranks(expected, np.ones(2), np.zeros(2), np.zeros(2), np.array([True, False]))
    assert ranks[0] == pytest.approx(200.0, rel=0.2)
    assert ranks[1] == pytest.approx(5e5, rel=0.2)


def test_who_is_about_to_reach_an_edge_ranks_no_later_than_at_it() -> None:
    """However close: only who ran for a year is taken to run for another one."""
    edges_s = EDGES_S[1:-1]
    at, before = (rank_curve(UNIFORM, 62.0, worked_s=worked_s) for worked_s in (edges_s, np.nextafter(edges_s, 0.0)))
    assert (before < 1.01 * at).all()

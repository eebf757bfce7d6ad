"""Figures of two policies on the same jobs, and their intervals, against values worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.report import paired_statistics as statistics
from slurm_soda.simulator.report.paired_statistics import (
    AVG_JCT,
    AVG_SLOWDOWN,
    P99_WAIT,
    WORST_JOB,
    WORST_USER,
    bounded_slowdown,
    jains_index,
)


@dataclass
class Run:
    jct_s: FloatColumn
    wait_s: FloatColumn
    user: IntColumn
    slowdown: FloatColumn | None = None


def run(
    jct_s: list[float], user: list[int], wait_s: list[float] | None = None, slowdown: list[float] | None = None
) -> Run:
    waits = jct_s if wait_s is None else wait_s
    told = None if slowdown is None else np.array(slowdown, dtype=float)
    return Run(np.array(jct_s, dtype=float), np.array(waits, dtype=float), np.array(user), told)


STOCK_RUN = run([100, 200, 300, 400], [0, 0, 1, 1])


def test_figures_by_hand() -> None:
    found = statistics.figures(run([100, 200, 900, 400], [0, 0, 1, 2], slowdown=[1, 2, 3, 6]))
    assert {key: float(values[0]) for key, values in found.items()} == {
        AVG_JCT: 400, P99_WAIT: 900, WORST_USER: 900, WORST_JOB: 900, AVG_SLOWDOWN: 3,
    }  # fmt: skip
    assert AVG_SLOWDOWN not in statistics.figures(STOCK_RUN)


def test_a_user_who_counts_twice_counts_twice() -> None:
    one = run([100, 200, 900, 400], [0, 0, 1, 2])
    found = statistics.figures(one, one.user, np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    assert found[AVG_JCT].tolist() == [(2 * 300 + 400) / 5, 900]
    assert found[WORST_USER].tolist() == [400, 900]
    assert found[WORST_JOB].tolist() == [400, 900]
    assert found[P99_WAIT].tolist() == [400, 900]


def test_users_whose_numbers_have_gaps_and_groups_of_other_kinds() -> None:
    one = run([100, 300, 900], [7, 7, 9])
    found = statistics.figures(one, np.array([0, 1, 1]), np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert found[WORST_USER].tolist() == [100, 900]
    assert found[AVG_JCT].tolist() == [100, 600]


def test_parts_of_the_draws_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    one = run(rng.uniform(1, 900, 40).tolist(), rng.integers(0, 12, 40).tolist())
    weights = statistics.draw_groups(rng, one.user)
    whole = statistics.figures(one, one.user, weights)
    monkeypatch.setattr(statistics, "_AT_A_TIME", 100)
    assert all(
        np.allclose(whole[key], values, rtol=1e-12)
        for key, values in statistics.figures(one, one.user, weights).items()
    )


def test_waits_below_a_minute_are_one() -> None:
    runs = {1: run([1000, 1000], [0, 1], [5, 20])}
    assert statistics.compare_runs(runs, {1: run([1000, 1000], [0, 1], [1, 2])})[P99_WAIT].value == 1.0


def test_ratios_are_geometric_means_over_seeds_that_both_ran() -> None:
    half, twice = run([50, 100, 150, 200], [0, 0, 1, 1]), run([800, 1600, 2400, 3200], [0, 0, 1, 1])
    found = statistics.compare_runs({1: half, 2: twice, 3: half}, {1: STOCK_RUN, 2: STOCK_RUN, 4: STOCK_RUN})
    assert found[AVG_JCT].value == pytest.approx(math.sqrt(0.5 * 8))
    assert found[WORST_JOB].value == pytest.approx(2.0)
    assert found[AVG_JCT].low == pytest.approx(0.5)
    assert found[AVG_JCT].high == pytest.approx(8.0)


def test_the_same_runs_differ_nowhere_and_an_interval_covers_its_value() -> None:
    rng = np.random.default_rng(3)
    user = np.arange(300) % 12
    stock = {seed: run((100 + rng.exponential(1000, 300)).tolist(), user.tolist()) for seed in range(5)}
    same = statistics.compare_runs(stock, stock)
    assert all(ratio.value == ratio.low == ratio.high == 1.0 for ratio in same.values())
    ours = {seed: run((one.jct_s * rng.uniform(0.2, 1.2, 300)).tolist(), user.tolist()) for seed, one in stock.items()}
    found = statistics.compare_runs(ours, stock)
    again = statistics.compare_runs(ours, stock)
    for key in (AVG_JCT, P99_WAIT, WORST_USER):
        assert found[key].low < found[key].value < found[key].high
        assert (found[key].draws == again[key].draws).all(), "the draws are seeded"
    assert 0.01 < found[AVG_JCT].high - found[AVG_JCT].low < 0.2


def test_intervals_cover_as_often_as_they_say() -> None:
    """Log-normal JCTs, a policy that divides each by a random factor of mean log -0.5: 40 worlds."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(40):
        runs, stock = {}, {}
        for seed in range(8):
            base = np.exp(rng.normal(7, 0.5, 60))
            user = rng.integers(0, 20, 60).tolist()
            shift = rng.normal(-0.5, 0.1)
            stock[seed], runs[seed] = run(base.tolist(), user), run((base * math.exp(shift)).tolist(), user)
        ratio = statistics.compare_runs(runs, stock)[AVG_JCT]
        covered += ratio.low <= math.exp(-0.5) <= ratio.high
    assert covered >= 32


@pytest.mark.parametrize(("users", "groups"), [(12, 12), (3, 50)])
def test_what_is_resampled(users: int, groups: int) -> None:
    one = run([1.0] * 200, [at % users for at in range(200)])
    found = statistics.find_groups(one)
    assert len(np.unique(found)) == groups
    assert (np.diff(found) >= 0).all() == (users < statistics.LEAST_USERS)


def test_a_short_job_counts_as_ten_seconds() -> None:
    assert bounded_slowdown(np.array([5.0, 30.0, 100.0]), np.array([1.0, 1.0, 50.0])).tolist() == [1.0, 3.0, 2.0]


def test_jains_index() -> None:
    assert jains_index(np.array([2.0, 2.0, 2.0])) == 1.0
    assert jains_index(np.array([5.0, 0.0, 0.0, 0.0])) == 0.25
    assert math.isnan(jains_index(np.zeros(0)))


def test_the_most_hurt_user_has_ten_jobs() -> None:
    stock = run([100.0] * 12, [0] * 10 + [1] * 2)
    ours = run([150.0] * 10 + [900.0] * 2, [0] * 10 + [1] * 2)
    assert statistics.most_hurt_user({1: ours}, {1: stock}) == 1.5
    assert math.isnan(statistics.most_hurt_user({1: ours}, {1: stock}, least_jobs=20))

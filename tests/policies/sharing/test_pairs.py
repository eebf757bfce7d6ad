"""Theorem 1 of SJF-BSBF against brute force over the time at which the new job starts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.completion_times import (
    OverlappedJob,
    find_best_schedule,
    mean_pair_completions_s,
    schedule_at,
    schedule_sequentially,
    schedule_together,
)
from tests.sampling import examples

works = st.floats(1.0, 1e5)
factors = st.floats(1.0, 6.0)
overlaps = st.builds(OverlappedJob, works, factors, factors)


def simulated(work_s: float, running: list[OverlappedJob], start_s: float) -> list[float]:
    """Ends of the new job and the running ones, by walking from event to event with the rates of the moment."""
    left = [work_s] + [one.work_s for one in running]
    ends = [math.nan] * len(left)
    now, started = 0.0, False
    while any(math.isnan(end) for end in ends):
        alive = [row for row in range(1, len(left)) if math.isnan(ends[row])]
        if not started and now >= start_s:
            started = True
        on = started and math.isnan(ends[0])
        pace = {row: (running[row - 1].xi if on else 1.0) for row in alive}
        if on:
            pace[0] = max([1.0] + [running[row - 1].new_xi for row in alive])
        steps = [left[row] * slow for row, slow in pace.items()]
        if not started:
            steps.append(start_s - now)
        step = min(steps)
        for row, slow in pace.items():
            left[row] -= step / slow
            if left[row] * slow <= 1e-9 * (1 + now + step):
                ends[row] = now + step
        now += step
        if not started and start_s - now <= 1e-12 * (1 + now):
            started = True
    return ends


def brute_means(new: float, xi_new: float, running: float, xi: float, starts: np.ndarray) -> np.ndarray:
    """Means of Equations 18 to 24 for every start, written from the rates and not from the theorem."""
    left = running - starts  # of the running job when the new one comes
    new_first = new * xi_new <= left * xi
    new_end = np.where(new_first, starts + new * xi_new, starts + left * xi + new - left * xi / xi_new)
    running_end = np.where(new_first, starts + new * xi_new + left - new * xi_new / xi, starts + left * xi)
    return (new_end + running_end) / 2


def test_theorem_1_on_thousands_of_random_pairs() -> None:
    rng = random.Random(20_240)
    shared, pairs = 0, examples(10_000)
    for _ in range(pairs):
        new, running = 10 ** rng.uniform(0, 5), 10 ** rng.uniform(0, 5)
        xi_new, xi = rng.choice((1.0, rng.uniform(1, 2), rng.uniform(1, 6))), rng.choice((rng.uniform(1, 2), 3.0))
        pair = [OverlappedJob(running, xi, xi_new)]
        starts = np.linspace(0.0, running, 201)
        means = brute_means(new, xi_new, running, xi, starts)
        least = float(means.min())
        now, later = schedule_together(new, pair), schedule_sequentially(new, pair)
        assert now.mean_s == pytest.approx(means[0], rel=1e-12)
        assert later.mean_s == pytest.approx(means[-1], rel=1e-12)
        assert min(now.mean_s, later.mean_s) <= least * (1 + 1e-12)
        chosen = find_best_schedule(new, pair)
        assert chosen.mean_s == min(now.mean_s, later.mean_s)
        assert chosen.start_s in {0.0, running}
        shared += chosen.start_s == 0.0
    assert 0.1 < shared / pairs < 0.9  # both answers occur


def test_equations_by_hand() -> None:
    # B needs 100 s and A 300 s; together B takes 150 s, in which A does 100 s of its work
    now = schedule_together(300.0, [OverlappedJob(100.0, 1.5, 1.5)])
    assert (now.new_end_s, now.ends_s) == (350.0, (150.0,))
    later = schedule_sequentially(300.0, [OverlappedJob(100.0, 1.5, 1.5)])
    assert (later.start_s, later.new_end_s, later.ends_s) == (100.0, 400.0, (100.0,))
    assert (
        find_best_schedule(300.0, [OverlappedJob(100.0, 1.5, 1.5)]).start_s == 100.0
    )  # equal means: sharing must gain
    assert find_best_schedule(300.0, [OverlappedJob(100.0, 1.4, 1.5)]).start_s == 0.0
    # the mirror image: A is the shorter one
    assert schedule_together(100.0, [OverlappedJob(300.0, 1.5, 1.5)]).ends_s == (350.0,)
    assert find_best_schedule(100.0, []).start_s == 0.0


@given(works, st.lists(overlaps, max_size=5), st.floats(0.0, 2e5))
def test_ends_are_those_of_the_rates(work_s: float, running: list[OverlappedJob], start_s: float) -> None:
    found = schedule_at(work_s, running, start_s)
    assert [found.new_end_s, *found.ends_s] == pytest.approx(simulated(work_s, running, start_s), rel=1e-6)


def test_best_start_beside_several_against_brute_force() -> None:
    rng = random.Random(7)
    between, cases = 0, examples(1_000)
    for _ in range(cases):
        running = [
            OverlappedJob(10 ** rng.uniform(0, 3), rng.uniform(1, 3), rng.uniform(1, 4))
            for _ in range(rng.randint(2, 5))
        ]
        work_s = 10 ** rng.uniform(0, 3)
        last = max(one.work_s for one in running)
        least = min(schedule_at(work_s, running, last * step / 150).mean_s for step in range(151))
        chosen = find_best_schedule(work_s, running)
        assert chosen.mean_s <= least * (1 + 1e-12)
        between += 0.0 < chosen.start_s < last
    assert between > 0.1 * cases  # Theorem 1's two schedules do not suffice for several partners


def test_the_best_start_may_let_two_partners_end_at_once() -> None:
    running = [OverlappedJob(120.0, 1.0, 2.01), OverlappedJob(100.0, 1.4, 2.0)]
    chosen = find_best_schedule(1_000.0, running)
    assert chosen.start_s == pytest.approx(50.0)
    assert chosen.ends_s == (pytest.approx(120.0), pytest.approx(120.0))
    assert all(chosen.mean_s < schedule_at(1_000.0, running, start).mean_s for start in (0.0, 49.0, 51.0, 100.0, 120.0))


@given(works, works, factors, factors)
def test_tables_agree_with_single_pairs(new: float, running: float, xi_new: float, xi: float) -> None:
    pair = [OverlappedJob(running, xi, xi_new)]
    now, later = mean_pair_completions_s(np.array([new]), np.array([running]), np.array([xi_new]), np.array([xi]))
    assert now[0] == pytest.approx(schedule_together(new, pair).mean_s, rel=1e-12)
    assert later[0] == pytest.approx(schedule_sequentially(new, pair).mean_s, rel=1e-12)


@given(works, works, st.floats(0.1, 1.5), st.floats(0.1, 1.5))
def test_speed_up_is_noise(new: float, running: float, xi_new: float, xi: float) -> None:
    counted = OverlappedJob(running, max(xi, 1.0), max(xi_new, 1.0))
    assert schedule_together(new, [OverlappedJob(running, xi, xi_new)]) == schedule_together(new, [counted])
    assert find_best_schedule(new, [OverlappedJob(running, xi, xi_new)]) == find_best_schedule(new, [counted])


@pytest.mark.parametrize(
    ("work_s", "one"),
    [
        (-1.0, OverlappedJob(1.0, 1.0, 1.0)),
        (math.inf, OverlappedJob(1.0, 1.0, 1.0)),
        (1.0, OverlappedJob(math.nan, 1.0, 1.0)),
        (1.0, OverlappedJob(1.0, 0.0, 1.0)),
        (1.0, OverlappedJob(1.0, 1.0, math.inf)),
    ],
)
def test_senseless_jobs_are_refused(work_s: float, one: OverlappedJob) -> None:
    with pytest.raises(PolicyError):
        schedule_at(work_s, [one], 0.0)

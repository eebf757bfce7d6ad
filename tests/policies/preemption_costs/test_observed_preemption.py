"""What a preemption cost, by the progress before and after it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.preemption_costs.observed_preemption import (
    MOST_S,
    NextRun,
    PreemptionCost,
    StoppedRun,
    measure_preemption,
)

STOPPED = StoppedRun(start_s=0.0, end_s=1000.0, last_s=980.0, iterations=500.0)


def after(iterations: float, start_s: float = 5000.0, load_s: float = 70.0) -> NextRun:
    return NextRun(start_s, start_s + load_s, iterations)


@pytest.mark.parametrize(
    ("iterations", "cost"),
    [
        (500.0, PreemptionCost(90.0, 0.0)),
        (300.0, PreemptionCost(90.0, 400.0)),
        (505.0, PreemptionCost(80.0, 0.0)),
        (900.0, PreemptionCost(0.0, 0.0)),
        (0.0, PreemptionCost(90.0, 1000.0)),
    ],
    ids=["saved when asked", "went back", "saved more than it told", "leaps", "began anew, at most the whole run"],
)
def test_time_without_progress_and_work_that_is_done_again(iterations: float, cost: PreemptionCost) -> None:
    assert measure_preemption(STOPPED, after(iterations), 2.0) == cost


@pytest.mark.parametrize(
    ("stopped", "went_on", "iteration_s"),
    [
        (STOPPED, after(500.0, start_s=900.0), 2.0),
        (STOPPED, after(500.0, load_s=-1.0), 2.0),
        (STOPPED, after(500.0, load_s=MOST_S), 2.0),
        (STOPPED, after(500.0), 0.0),
        (STOPPED, after(500.0), math.nan),
        (STOPPED._replace(end_s=math.nan), after(500.0), 2.0),
    ],
)
def test_times_that_contradict_each_other_say_nothing(
    stopped: StoppedRun, went_on: NextRun, iteration_s: float
) -> None:
    assert measure_preemption(stopped, went_on, iteration_s) is None


@given(*(st.floats(0.0, 1e4) for _ in range(4)), st.floats(0.1, 10.0), st.floats(0.0, 1.0))
def test_all_of_it_is_accounted_for_however_late_the_last_word_was(
    worked_s: float, silent_s: float, lost_s: float, load_s: float, iteration_s: float, saved: float
) -> None:
    """The run worked on for ``silent_s`` after its last word, and went on from a state that was ``lost_s`` old."""
    done_s = worked_s + silent_s
    lost_s = min(lost_s, done_s) * saved
    stopped = StoppedRun(0.0, done_s + 30.0, worked_s, worked_s / iteration_s)
    went_on = NextRun(1e6, 1e6 + load_s, (done_s - lost_s) / iteration_s)
    cost = measure_preemption(stopped, went_on, iteration_s)
    assert cost is not None
    assert cost.overhead_s + cost.lost_s == pytest.approx(30.0 + load_s + lost_s, abs=1e-3)

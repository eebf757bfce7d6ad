"""Predictions stand until they are outlived."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.run_times.standing_predictions import StandingPredictions

SECONDS = st.floats(1.0, 1e6)


def ask(standing: StandingPredictions, *jobs: tuple[int, float, float]) -> list[float]:
    """Jobs as (id, attained, predicted)."""
    job_id, attained_s, predicted_s = zip(*jobs, strict=True)
    ids = np.array(job_id, dtype=np.int64)
    return standing.remaining(ids, np.array(attained_s), np.array(predicted_s)).tolist()


def test_less_is_left_the_longer_a_job_runs_and_all_is_new_once_nothing_is() -> None:
    standing = StandingPredictions()
    assert ask(standing, (7, 0.0, 100.0)) == [100.0]
    assert ask(standing, (7, 0.0, 200.0)) == [200.0], "it has not run: what is known by now counts"
    assert ask(standing, (7, 10.0, 90.0)) == [90.0]
    assert ask(standing, (7, 60.0, 5000.0)) == [40.0]
    assert ask(standing, (7, 50.0, 5000.0)) == [50.0], "it lost work, and has to do that once more"
    assert ask(standing, (7, 100.0, 5000.0)) == [5000.0]
    assert ask(standing, (7, 101.0, 1.0)) == [4999.0]


def test_jobs_that_are_not_listed_are_forgotten_and_others_are_not_mistaken_for_them() -> None:
    standing = StandingPredictions()
    ask(standing, (3, 10.0, 90.0), (7, 10.0, 990.0))
    assert ask(standing, (1, 10.0, 5.0), (7, 20.0, 5.0), (9, 10.0, 5.0)) == [5.0, 980.0, 5.0]
    assert ask(standing, (3, 20.0, 5.0)) == [5.0]


def test_where_nothing_is_predicted_nothing_is_said_until_something_is() -> None:
    standing = StandingPredictions()
    assert np.isnan(ask(standing, (1, 10.0, float("nan")))).all()
    assert ask(standing, (1, 20.0, 80.0)) == [80.0]
    assert ask(standing, (1, 30.0, float("nan"))) == [70.0]


@given(st.lists(st.tuples(st.floats(0.1, 1e4), SECONDS), min_size=1, max_size=60))
def test_what_is_predicted_changes_only_when_it_is_outlived(steps: list[tuple[float, float]]) -> None:
    standing, attained_s, total_s = StandingPredictions(), 0.0, 0.0
    for ran_s, predicted_s in steps:
        attained_s += ran_s
        (left_s,) = ask(standing, (1, attained_s, predicted_s))
        if attained_s >= total_s:
            total_s = attained_s + predicted_s
        assert left_s > 0
        assert attained_s + left_s == pytest.approx(total_s)

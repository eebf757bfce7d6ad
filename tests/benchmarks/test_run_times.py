"""The scores of predicted run times, on jobs made so that they are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks.run_times import _ranks, foresee, scores
from slurm_soda.simulator.workload import Workload


def test_owners_who_repeat_themselves_are_predicted_and_the_rest_is_not() -> None:
    rows = [
        {"submit_s": at * 3600.0, "run_s": 100.0 if at % 2 else 10_000.0, "user": "swift" if at % 2 else "long"}
        for at in range(200)
    ]
    jobs, found = scores(Workload.build("made", rows), learn_days=4.0)
    assert jobs == 200 - 96
    factors = {score.name: score.factor for score in found}
    assert factors["slurm-soda"] < 1.15
    assert factors["owner's last job"] == pytest.approx(1.0)
    assert factors["everybody's geometric mean"] == pytest.approx(10.0, rel=0.1)
    assert next(score for score in found if score.name == "slurm-soda").rank_correlation > 0.8


def test_no_job_is_learned_before_its_end() -> None:
    rows = [{"submit_s": 0.0, "run_s": 1e6, "user": "a"}, {"submit_s": 10.0, "run_s": 50.0, "user": "a"}]
    _, found = scores(Workload.build("made", rows), learn_days=1.0 / 86_400)
    last = next(score for score in found if score.name == "owner's last job")
    assert last.factor == pytest.approx(3600.0 / 50.0), "nobody has ended, so an hour is assumed"


def test_equal_values_share_a_rank() -> None:
    assert _ranks(np.array([3.0, 1.0, 3.0, math.pi])).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_how_likely_run_times_were_is_told_for_each_way_to_learn() -> None:
    """Two scripts of one owner, which only their time limits tell apart."""
    rows = [
        {"submit_s": at * 1e5, "run_s": 110.0 if at % 2 else 10_100.0, "time_limit_s": 600.0 if at % 2 else 86_400.0,
         "user": "alice"}
        for at in range(60)
    ]  # fmt: skip
    found = {each.name: each for each in foresee([Workload.build("made", rows)])}
    assert found["uniform in the logarithm"].log_probability == pytest.approx(-math.log(96))
    one, by_limit = found["one bin a job"], found["one bin a job, time limits"]
    assert by_limit.log_probability > one.log_probability + 0.3
    assert by_limit.median_factor < 1.2
    assert one.median_factor > 5.0
    assert found["close bins too"].log_probability < one.log_probability, "here run times repeat exactly"
    fixed, learned = found["close bins too, time limits"], found["learned widths, time limits"]
    assert learned.log_probability > fixed.log_probability + 0.3

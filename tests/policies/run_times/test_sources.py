"""Who is asked first about a run time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import LearnedRunTime, RunTimeLearner
from slurm_soda.policies.run_times.prediction_sources import IterationWork, RunTimeSource, predict_run_time_left
from slurm_soda.policies.sharing.job_kinds import Estimate, Source

EACH = Estimate(0.5, 0.05, Source.MEASURED)


def learnt(run_s: float, jobs: int) -> LearnedRunTime:
    learner = RunTimeLearner()
    for _ in range(jobs):
        learner.learn(SubmissionTraits("alice", 1), run_s)
    return learner.known(SubmissionTraits("alice", 1))


@pytest.mark.parametrize(
    ("known", "by", "left_s"),
    [
        (
            {"progress": IterationWork(100, EACH), "iterations": IterationWork(1000, EACH), "learnt": 90.0},
            RunTimeSource.PROGRESS,
            50.0,
        ),
        ({"iterations": IterationWork(1000, EACH), "learnt": 90.0}, RunTimeSource.ITERATIONS, 400.0),
        ({"learnt": 1000.0}, RunTimeSource.HISTORY, 900.0),
        ({}, RunTimeSource.LIMIT, 3500.0),
    ],
)
def test_the_first_that_knows_answers(known: dict, by: RunTimeSource, left_s: float) -> None:  # type: ignore[type-arg]
    history = learnt(known.pop("learnt"), 50) if "learnt" in known else learnt(1.0, 0)
    told = predict_run_time_left(100.0, 3600.0, learnt=history, **known)
    assert told is not None
    assert told.by is by
    assert told.left.value == pytest.approx(left_s, rel=0.3)


def test_a_count_that_was_passed_long_ago_is_no_longer_believed() -> None:
    told = predict_run_time_left(5000.0, math.inf, iterations=IterationWork(1000, EACH), learnt=learnt(9000.0, 50))
    assert told is not None
    assert told.by is RunTimeSource.HISTORY


def test_nobody_knows_and_there_is_no_limit() -> None:
    assert predict_run_time_left(0.0, math.inf, learnt=learnt(1.0, 0)) is None


def test_the_basis_is_in_words() -> None:
    told = predict_run_time_left(0.0, math.inf, learnt=learnt(60.0, 3))
    assert told is not None
    assert (told.jobs, told.basis) == (3, "of alice, on 1 GPU")


@given(
    st.floats(0, 1e7), st.floats(1, 1e7), st.floats(0, 1e9), st.floats(1e-3, 1e3), st.floats(1, 1e6), st.integers(0, 20)
)
def test_never_more_than_the_limit_leaves(
    attained_s: float, limit_s: float, count: float, each_s: float, past_s: float, jobs: int
) -> None:
    each = Estimate(each_s, each_s / 10, Source.IMPORTED)
    for known in ({"progress": IterationWork(count, each)}, {"iterations": IterationWork(count, each)}, {}):
        told = predict_run_time_left(attained_s, limit_s, learnt=learnt(past_s, jobs), **known)
        assert told is not None
        assert 0.0 <= told.left.value <= max(limit_s - attained_s, 0.0)


@pytest.mark.parametrize(("left", "each"), [(-1.0, 1.0), (math.inf, 1.0), (10.0, 0.0)])
def test_work_that_cannot_be(left: float, each: float) -> None:
    with pytest.raises(PolicyError, match="iteration"):
        IterationWork(left, Estimate(each, 0.0, Source.MEASURED))

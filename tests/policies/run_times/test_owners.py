"""One owner's lies: how far they move what others are told, by the medians and by the groups of several owners."""

from __future__ import annotations

import math
from itertools import product
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.run_times import learner as learner_module
from slurm_soda.policies.run_times.job_groups import JobGroup, SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.owners import MIN_OWNERS, median_over_owners, weighted_median
from slurm_soda.policies.run_times.running_jobs import RunningJobs
from tests.sampling import examples

VALUES = st.floats(1e-6, 1e6)
RUN_TIMES = st.floats(0.0, 1e7)


@given(st.lists(VALUES, min_size=MIN_OWNERS, max_size=9), VALUES)
@settings(max_examples=examples(200))
def test_a_liar_moves_a_median_by_half_the_distance_of_two_neighbours_at_most(honest: list[float], lie: float) -> None:
    ordered, middle = sorted(honest), median(honest)
    count = len(ordered)
    low, high = (count // 2 - 1, count // 2) if count % 2 == 0 else (count // 2 - 1, count // 2 + 1)
    reach = (ordered[high] - ordered[low]) / 2 if count % 2 == 0 else max(
        middle - ordered[low], ordered[high] - middle
    ) / 2  # fmt: skip
    told = median_over_owners([*honest, lie])
    assert told is not None
    assert abs(told - middle) <= reach * (1 + 1e-9)


@given(st.tuples(VALUES, VALUES), VALUES)
@settings(max_examples=examples(50))
def test_with_two_honest_owners_a_liar_stays_between_them(honest: tuple[float, float], lie: float) -> None:
    told = median_over_owners([*honest, lie])
    assert told is not None
    assert min(honest) <= told <= max(honest)
    assert median_over_owners(honest) is None, "two owners are too few to speak for others"


@given(VALUES, st.integers(1, 50), st.lists(VALUES, max_size=50))
@settings(max_examples=examples(50))
def test_short_jobs_do_not_change_an_owners_own_value_while_they_ran_less_than_the_rest(
    own: float, hours: int, claims: list[float]
) -> None:
    assert weighted_median([own, *claims], [3600.0 * hours, *(60.0 for _ in claims)]) == own


LIMITS_S = (3600.0, 86_400.0, math.inf)
KINDS = st.tuples(st.sampled_from([1, 2]), st.sampled_from(["", "resnet50"]), st.sampled_from(LIMITS_S))
LIES = st.lists(st.tuples(KINDS, RUN_TIMES), max_size=15)
AGES = st.lists(st.tuples(KINDS, st.integers(0, 6), RUN_TIMES), max_size=15)
JOBS = st.lists(st.tuples(st.integers(0, 5), KINDS, RUN_TIMES), max_size=15)


def of_kind(owner: str, kind: tuple[int, str, float]) -> SubmissionTraits:
    gpus, model, limit_s = kind
    return SubmissionTraits(owner, gpus, "main", "train", model, limit_s)


def run_on(learner: RunTimeLearner, traits: SubmissionTraits, age_s: float) -> None:
    RunningJobs(learner).observe(np.array([1]), np.array([age_s]), lambda row: traits)


@given(JOBS, LIES, LIES, AGES, AGES, st.sampled_from(["owner0", "newcomer"]), KINDS)
@settings(max_examples=examples(60))
def test_whatever_a_liar_runs_no_run_time_of_others_is_more_likely_by_more_than_his_share(
    jobs: list[tuple[int, tuple[int, str, float], float]],
    lies: list[tuple[tuple[int, str, float], float]],
    other_lies: list[tuple[tuple[int, str, float], float]],
    ages: list[tuple[tuple[int, str, float], int, float]],
    other_ages: list[tuple[tuple[int, str, float], int, float]],
    asker: str,
    asked: tuple[int, str, float],
) -> None:
    """Whatever others run, and for how long jobs of them and of the liar have run that have not ended."""
    ends = []
    for told, lied in ((lies, ages), (other_lies, other_ages)):
        learner = RunTimeLearner()
        for kind in product((1, 2), ("", "resnet50"), LIMITS_S):
            for owner in (*(f"owner{at}" for at in range(6)), "liar"):
                learner.learn(of_kind(owner, kind), 600.0)
        for at, kind, run_s in jobs:
            learner.learn(of_kind(f"owner{at}", kind), run_s)
        for kind, run_s in told:
            learner.learn(of_kind("liar", kind), run_s)
        for kind, at, age_s in ages:
            if at < 6:
                run_on(learner, of_kind(f"owner{at}", kind), age_s)
        for kind, _, age_s in lied:
            run_on(learner, of_kind("liar", kind), age_s)
        probability, _, _ = learner.distribution(of_kind(asker, asked))
        ends.append(np.cumsum(probability))
        assert probability.sum() == pytest.approx(1.0)
    assert np.abs(ends[0] - ends[1]).max() <= 1 / 7 + 1e-9


def test_a_liar_takes_no_larger_part_where_all_groups_ask_for_the_limit() -> None:
    """The farthest that a lie gets: seven owners of one job each, and who asks has none."""
    ends = []
    for lie_s in (1.0, 1e7):
        learner, kind = RunTimeLearner(), (1, "resnet50", 3600.0)
        for owner in (f"owner{at}" for at in range(6)):
            learner.learn(of_kind(owner, kind), 600.0)
        for _ in range(500):
            learner.learn(of_kind("liar", kind), lie_s)
        probability, group, _ = learner.distribution(of_kind("newcomer", kind))
        assert (group.owner, group.model) == (None, "resnet50")
        ends.append(np.cumsum(probability))
    assert 0.1 < np.abs(ends[0] - ends[1]).max() <= 1 / 7


def told_s(learner: RunTimeLearner, traits: SubmissionTraits) -> float:
    return learner.known(traits).curve.remaining(0.0).value


def test_a_thousand_short_jobs_of_one_owner_do_not_make_others_short() -> None:
    """Before owners counted once, a newcomer was told 1.1 s here."""
    learner = RunTimeLearner()
    for owner in ("alice", "bob", "carol", "dave"):
        for _ in range(20):
            learner.learn(SubmissionTraits(owner, 1, "main", "train", "resnet50"), 3600.0)
    newcomer = SubmissionTraits("newcomer", 1, "main", "first", "resnet50")
    before = told_s(learner, newcomer)
    for _ in range(1000):
        learner.learn(SubmissionTraits("liar", 1, "main", "train", "resnet50"), 1.0)
    assert before == pytest.approx(3600.0, rel=0.2)
    assert told_s(learner, newcomer) == pytest.approx(before, rel=0.2)
    alice = SubmissionTraits("alice", 1, "main", "train", "resnet50")
    assert told_s(learner, alice) == pytest.approx(3600.0, rel=0.2)
    assert told_s(learner, SubmissionTraits("liar", 1, "main", "train", "resnet50")) < 10.0, "it is true of the liar"


def test_many_names_of_one_owners_jobs_make_nobody_elses_past_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "MAX_GROUPS", 30)
    learner = RunTimeLearner()
    alice = SubmissionTraits("alice", 1, "main", "train")
    learner.learn(alice, 3600.0)
    for at in range(200):
        learner.learn(SubmissionTraits("liar", 1, "main", "x" * (1 + at)), 1.0)
    assert learner.known(alice).group.words() == "of alice, on 1 GPU in main, named train"


def test_a_limit_that_few_owners_give_says_nothing_to_others() -> None:
    learner = RunTimeLearner()
    for owner in ("alice", "bob", "carol"):
        learner.learn(of_kind(owner, (1, "", 3600.0)), 600.0)
    known = learner.known(of_kind("newcomer", (1, "", 3600.0)))
    assert (known.jobs, known.group.limit_s) == (3, 3600.0)
    assert learner.known(of_kind("alice", (2, "", 3600.0))).group == JobGroup(owner="alice")
    for _ in range(50):
        learner.learn(of_kind("liar", (1, "", 7200.0)), 1.0)
    assert learner.known(of_kind("newcomer", (1, "", 7200.0))).group.limit_s is None


def test_ones_own_jobs_count_however_few_owners_there_are() -> None:
    learner = RunTimeLearner()
    for _ in range(3):
        learner.learn(SubmissionTraits("alice", 1, "main"), 3600.0)
    known = learner.known(SubmissionTraits("alice", 1, "main"))
    assert (known.jobs, known.group.owner) == (3, "alice")
    assert learner.known(SubmissionTraits("bob", 1, "main")).jobs == 0, "one owner says nothing of others"

"""One owner's lies: how far they move what others are told, by the medians and by the groups of several owners."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.run_times import learner as learner_module
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.owners import MIN_OWNERS, median_over_owners, weighted_median
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


LIES = st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from(["", "resnet50"]), RUN_TIMES), max_size=15)
JOBS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([1, 2]), st.sampled_from(["", "resnet50"]), RUN_TIMES), max_size=15
)


@given(JOBS, LIES, LIES, st.sampled_from(["owner0", "newcomer"]), st.integers(1, 2), st.sampled_from(["", "resnet50"]))
@settings(max_examples=examples(60))
def test_whatever_a_liar_runs_no_run_time_of_others_is_more_likely_by_more_than_his_share(
    jobs: list[tuple[int, int, str, float]],
    lies: list[tuple[int, str, float]],
    other_lies: list[tuple[int, str, float]],
    asker: str,
    gpus: int,
    model: str,
) -> None:
    asked = SubmissionTraits(asker, gpus, "main", "train", model)
    ends = []
    for told in (lies, other_lies):
        learner = RunTimeLearner()
        for shape in (1, 2):
            for kind in ("", "resnet50"):
                for owner in (*(f"owner{at}" for at in range(6)), "liar"):
                    learner.learn(SubmissionTraits(owner, shape, "main", "train", kind), 600.0)
        for at, shape, kind, run_s in jobs:
            learner.learn(SubmissionTraits(f"owner{at}", shape, "main", "train", kind), run_s)
        for shape, kind, run_s in told:
            learner.learn(SubmissionTraits("liar", shape, "main", "train", kind), run_s)
        probability, _, _ = learner.distribution(asked)
        ends.append(np.cumsum(probability))
        assert probability.sum() == pytest.approx(1.0)
    assert np.abs(ends[0] - ends[1]).max() <= 1 / 7 + 1e-9


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


def test_ones_own_jobs_count_however_few_owners_there_are() -> None:
    learner = RunTimeLearner()
    for _ in range(3):
        learner.learn(SubmissionTraits("alice", 1, "main"), 3600.0)
    known = learner.known(SubmissionTraits("alice", 1, "main"))
    assert (known.jobs, known.group.owner) == (3, "alice")
    assert learner.known(SubmissionTraits("bob", 1, "main")).jobs == 0, "one owner says nothing of others"

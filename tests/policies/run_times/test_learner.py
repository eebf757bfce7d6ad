"""What is learned from ended jobs, and from whose."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.run_times import learner as learner_module
from slurm_soda.policies.run_times.job_groups import JobGroup, SubmissionTraits, list_groups
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import find_bins
from tests.sampling import examples

ALICE = SubmissionTraits("alice", 4, "main", "train-17", "resnet50")


def median_s(learner: RunTimeLearner, traits: SubmissionTraits) -> float:
    return learner.known(traits).curve.remaining(0.0).value


def taught(*lessons: tuple[SubmissionTraits, float, int]) -> RunTimeLearner:
    learner = RunTimeLearner()
    for traits, run_s, times in lessons:
        for _ in range(times):
            learner.learn(traits, run_s)
    return learner


def test_groups_lead_from_everybody_to_the_very_kind() -> None:
    groups = list_groups(ALICE)
    assert groups[0] == JobGroup()
    assert groups[-1] == JobGroup("alice", 4, "main", "resnet50", "train-#")
    assert len(set(groups)) == len(groups)
    assert len(list_groups(SubmissionTraits("alice", 4))) == 4, "no groups for a name, model and limit that nobody gave"


def test_groups_by_limit_come_after_those_of_any_limit() -> None:
    groups = list_groups(replace(ALICE, limit_s=7200.0))
    assert [group for group in groups if group.limit_s is None] == list(list_groups(ALICE))
    for group in groups:
        if group.limit_s is not None:
            assert groups.index(group._replace(limit_s=None)) < groups.index(group)
    assert groups[-1] == JobGroup("alice", 4, "main", "resnet50", "train-#", 7200.0)
    assert groups[-1].words() == ("of alice, on 4 GPUs in main, named train-#, training resnet50, limited to 120 min")
    assert list_groups(replace(ALICE, limit_s=math.inf)) == list_groups(ALICE)


@pytest.mark.parametrize("traits", [ALICE, SubmissionTraits("alice", 4), SubmissionTraits("alice", 4, "main", "bash")])
def test_jobs_of_one_owner_shape_and_name_with_different_limits_are_told_apart_after_few(
    traits: SubmissionTraits,
) -> None:
    short, long = replace(traits, limit_s=600.0), replace(traits, limit_s=86_400.0)
    learner = taught((traits, 2000.0, 100))
    for _ in range(8):
        learner.learn(short, 300.0)
        learner.learn(long, 40_000.0)
    assert 150.0 < median_s(learner, short) < 600.0
    assert 20_000.0 < median_s(learner, long) < 80_000.0
    new = replace(traits, limit_s=7200.0)
    assert median_s(learner, new) == pytest.approx(median_s(learner, traits), rel=0.01), "a new limit says nothing"
    assert learner.known(new).group == learner.known(traits).group


def test_only_groups_of_several_owners_that_somebody_asks_are_kept() -> None:
    limited = replace(ALICE, limit_s=7200.0)
    learner = taught(*((replace(limited, owner=owner), 100.0, 1) for owner in "abcd"))
    assert set(learner._common) == {group for group in list_groups(limited) if group.owner is None}


def test_a_run_time_makes_close_ones_likely_and_far_ones_hardly() -> None:
    learner = taught((ALICE, 5000.0, 40))
    probability = learner.known(ALICE).probability
    at = int(find_bins(np.array([5000.0]))[0])
    assert int(probability.argmax()) == at
    assert (np.diff(probability[: at + 1]) > 0).all()
    assert (np.diff(probability[at:]) < 0).all()
    near = probability[at - 5 : at + 6]  # within a factor of 2.5
    assert near.sum() > 0.8


def test_numbers_in_names_do_not_tell_jobs_apart() -> None:
    learner = taught((ALICE, 5000.0, 20))
    other = SubmissionTraits("alice", 4, "main", "train-18", "resnet50")
    assert median_s(learner, other) == median_s(learner, ALICE)


@pytest.mark.parametrize(
    "asked",
    [
        SubmissionTraits("alice", 1),  # the owner, another shape
        SubmissionTraits("alice", 4, "main", "other", "vgg"),  # the owner's shape, another model
        SubmissionTraits("bob", 4, "main", "", "resnet50"),  # another owner, the same model
    ],
)
def test_what_is_new_is_expected_to_be_like_what_resembles_it(asked: SubmissionTraits) -> None:
    like_alice = [replace(ALICE, owner=owner) for owner in ("dave", "erin")]
    learner = taught(
        (ALICE, 5000.0, 30),
        (SubmissionTraits("carol", 8, "main"), 60.0, 30),
        *((like, 5000.0, 30) for like in like_alice),
    )
    assert median_s(learner, asked) == pytest.approx(5000.0, rel=0.3)


def test_a_few_jobs_of_ones_own_shrink_towards_the_others_and_many_do_not() -> None:
    others = [(SubmissionTraits(owner, 1), 100.0, 100) for owner in ("bob", "carol", "dave")]
    medians = [
        median_s(taught(*others, (SubmissionTraits("alice", 1), 10_000.0, times)), SubmissionTraits("alice", 1))
        for times in (0, 2, 40)
    ]
    assert medians[0] == pytest.approx(100.0, rel=0.25)
    assert medians[0] <= medians[1] < medians[2]
    assert medians[2] == pytest.approx(10_000.0, rel=0.25)


def test_a_user_who_changes_is_followed() -> None:
    """Of 60 jobs more than half of what counts is new; its other half reaches down to what was before."""
    learner = taught((ALICE, 100.0, 500), (ALICE, 8000.0, 60))
    assert 900.0 < median_s(learner, ALICE) < 8000.0, "nearer to the new one by factor"
    for _ in range(60):
        learner.learn(ALICE, 8000.0)
    assert median_s(learner, ALICE) == pytest.approx(8000.0, rel=0.25)


def test_without_any_past_every_length_is_possible_and_nothing_is_sure() -> None:
    known = RunTimeLearner().known(ALICE)
    assert known.jobs == 0
    estimate = known.curve.remaining(0.0)
    assert estimate.error > estimate.value


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.floats(0, 1e8)), max_size=40))
@settings(max_examples=examples(30))
def test_the_same_jobs_teach_the_same_to_the_bit(jobs: list[tuple[str, int, float]]) -> None:
    curves = []
    for _ in range(2):
        learner = RunTimeLearner()
        for owner, gpus, run_s in jobs:
            learner.learn(SubmissionTraits(owner, gpus), run_s)
        curves.append(learner.known(SubmissionTraits("a", 1)).curve)
    assert np.array_equal(curves[0].total_s, curves[1].total_s)
    assert np.array_equal(curves[0].error_s, curves[1].error_s)


def test_groups_are_bounded_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "MAX_GROUPS", 10)
    learner = RunTimeLearner()
    for number in range(50):
        learner.learn(SubmissionTraits(f"user{number}", 1), 100.0)
    assert learner.known(SubmissionTraits("user49", 1)).group.owner == "user49"
    assert learner.known(SubmissionTraits("user0", 1)).group.owner is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(0, 2)), max_size=80))
@settings(max_examples=examples(30))
def test_whoever_has_most_groups_loses_his_oldest_one(jobs: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner_module, "MAX_GROUPS", 12)
        patch.setattr(learner_module, "_STALE_ENTRIES", 3)
        learner, kept = RunTimeLearner(), dict[str, list[JobGroup]]()
        for owner, gpus, name in jobs:
            traits = SubmissionTraits(f"user{owner}", gpus, "main", "x" * name)
            learner.learn(traits, 100.0)
            own = [group for group in list_groups(traits) if group.owner is not None]
            kept[traits.owner] = [*(group for group in kept.pop(traits.owner, []) if group not in own), *own]
            while sum(map(len, kept.values())) > 12:
                kept[max(kept, key=lambda each: len(kept[each]))].pop(0)
            kept = {each: groups for each, groups in kept.items() if groups}
            assert {each: list(groups) for each, groups in learner._groups.items()} == kept
            assert len(learner._most) <= 2 * len(kept) + 4


def test_what_an_ended_job_costs_does_not_grow_with_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(owners: int) -> int:
        """Of any function, for a job by each of 20 more, where groups of so many owners are kept."""
        monkeypatch.setattr(learner_module, "MAX_GROUPS", owners)
        learner = taught(*((SubmissionTraits(f"user{at}", 1), 100.0, 1) for at in range(owners)))
        made = 0

        def count(_frame: object, _event: str, _told: object) -> None:
            nonlocal made
            made += 1

        sys.setprofile(count)
        try:
            for at in range(20):
                learner.learn(SubmissionTraits(f"newcomer{at}", 1), 100.0)
        finally:
            sys.setprofile(None)
        return made

    assert calls(500) < 2 * calls(100)


@pytest.mark.parametrize("run_s", [-1.0, float("nan"), float("inf")])
def test_no_run_time_is_refused_by_name(run_s: float) -> None:
    with pytest.raises(PolicyError, match="run time"):
        RunTimeLearner().learn(ALICE, run_s)

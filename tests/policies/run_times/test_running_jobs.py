"""Jobs that have not ended teach until they end."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.policies.run_times import learner as learner_module
from slurm_soda.policies.run_times.batch_prediction import BatchRunTimePredictor
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import find_bins
from slurm_soda.policies.run_times.running_jobs import ReachedBin, RunningJobs
from slurm_soda.policies.snapshot import FloatColumn

ALICE = SubmissionTraits("alice", 1, "main", "train", "resnet50")


def longer(learner: RunTimeLearner, run_s: float, traits: SubmissionTraits = ALICE) -> float:
    """How likely a job runs for longer."""
    return float(learner.known(traits).probability[find_bins(np.array([run_s]))[0] + 1 :].sum())


def observe(running: RunningJobs, ages_s: dict[int, float], traits: SubmissionTraits = ALICE) -> list[ReachedBin]:
    ids, attained_s = np.array(sorted(ages_s), dtype=np.int64), np.array([ages_s[at] for at in sorted(ages_s)])
    return running.observe(ids, attained_s, lambda row: traits)


def test_the_first_jobs_that_end_do_not_make_all_look_as_short() -> None:
    """Of 40 jobs of 60 or 240 s that began together, half have ended after 100 s."""
    learner = RunTimeLearner()
    running = RunningJobs(learner)
    observe(running, dict.fromkeys(range(40), 50.0))
    for _ in range(20):
        learner.learn(ALICE, 60.0)
    assert longer(learner, 90.0) < 0.05, "what was believed before"
    observe(running, dict.fromkeys(range(20, 40), 100.0))
    assert longer(learner, 90.0) == pytest.approx(0.5, abs=0.05)
    for _ in range(20):
        learner.learn(ALICE, 240.0)
    observe(running, {})
    assert len(running) == 0
    assert longer(learner, 90.0) == pytest.approx(0.5, abs=0.1)


def test_once_a_job_ends_nothing_is_left_of_what_it_told_before() -> None:
    told = []
    for ages in ([], [1.5, 30.0, 30.0, 700.0]):
        learner = RunTimeLearner()
        running = RunningJobs(learner)
        for run_s in (100.0, 5000.0, 100.0):
            learner.learn(ALICE, run_s)
        for age_s in ages:
            observe(running, {7: age_s})
        observe(running, {})
        learner.learn(ALICE, 900.0)
        told.append(learner.known(ALICE).probability)
    assert told[0].tolist() == told[1].tolist()


def test_jobs_of_other_kinds_hear_of_it_by_their_owner_and_others_once_some_ended() -> None:
    learner = RunTimeLearner()
    running, newcomer = RunningJobs(learner), SubmissionTraits("newcomer", 1, "main", "", "resnet50")
    for owner in ("bob", "carol", "alice"):
        for _ in range(5):
            learner.learn(SubmissionTraits(owner, 1, "main", "train", "resnet50"), 60.0)
    before, other = longer(learner, 90.0, newcomer), SubmissionTraits("alice", 8, "main", "", "vgg16")
    mine = longer(learner, 90.0, other)
    observe(running, dict.fromkeys(range(20), 1000.0))
    assert longer(learner, 90.0, other) > mine + 0.4
    after = longer(learner, 90.0, newcomer)
    assert before + 0.1 < after < before + 1 / 3 + 1e-9, "no owner changes more than his share"


def test_jobs_that_run_for_months_are_no_larger_part_of_what_is_remembered_than_they_were_when_they_began() -> None:
    """Ten of a thousand; the others are forgotten, and so are these."""
    learner = RunTimeLearner()
    running = RunningJobs(learner)
    observe(running, dict.fromkeys(range(10), 2.0))
    for _ in range(990):
        learner.learn(ALICE, 60.0)
    observe(running, dict.fromkeys(range(10), 1e7))
    assert longer(learner, 90.0) < 0.05


def test_work_that_was_lost_was_done_and_a_preempted_job_still_counts() -> None:
    learner = RunTimeLearner()
    running = RunningJobs(learner)
    learner.learn(ALICE, 60.0)
    assert observe(running, {1: 0.5}) == []
    assert observe(running, {1: 1000.0}) == [ReachedBin(0, 0, int(find_bins(np.array([1000.0]))[0]))]
    likely = longer(learner, 90.0)
    assert observe(running, {1: 10.0}) == []
    assert longer(learner, 90.0) == likely
    assert observe(running, {1: 0.0, 2: 0.0}) == []
    assert longer(learner, 90.0) == likely


def test_what_is_forgotten_for_lack_of_space_is_moved_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "MAX_GROUPS", 10)
    learner = RunTimeLearner()
    running = RunningJobs(learner)
    for at in range(20):
        observe(running, {at: 50.0}, SubmissionTraits(f"user{at}", 1))
        learner.learn(SubmissionTraits(f"user{at}", 1), 60.0)
    assert sum(len(own) for own in learner._groups.values()) <= 10
    observe(running, {})
    probability: FloatColumn = learner.known(SubmissionTraits("user0", 1)).probability
    assert probability.sum() == pytest.approx(1.0)
    assert (probability > 0).all()


def test_a_table_of_jobs_hears_of_those_that_outlive_what_was_expected() -> None:
    forecast = BatchRunTimePredictor()
    for _ in range(12):
        forecast.ended(ALICE, 60.0)
    ids, numbers = np.arange(1, 13), np.full(12, forecast.number(ALICE))
    forecast.observe(ids, numbers, np.full(12, 20.0))
    before = forecast.remaining(numbers, np.zeros(12))[0]
    forecast.observe(ids, numbers, np.full(12, 3000.0))
    after = forecast.remaining(numbers, np.zeros(12))[0]
    assert before < 100.0 < after
    assert after == pytest.approx(forecast.learner.known(ALICE).curve.remaining(0.0).value)


def test_the_same_jobs_at_the_same_ages_teach_the_same_to_the_bit() -> None:
    told = []
    for _ in range(2):
        learner, rng = RunTimeLearner(), np.random.default_rng(1)
        running = RunningJobs(learner)
        for at in range(30):
            observe(running, {job: float(rng.lognormal(5, 2)) for job in range(at, at + 10)})
            learner.learn(ALICE, float(rng.lognormal(5, 2)))
        told.append(learner.known(ALICE).probability.tobytes())
    assert told[0] == told[1]

"""How far a job's run time spreads over others: learned by each group from its own jobs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import BINS, MIDDLES_S, STEP_RATIO, find_bins
from slurm_soda.policies.run_times.spreads import SPREAD_RATIO, SPREAD_RATIOS, Spreads
from slurm_soda.policies.snapshot import FloatColumn

SEARCH = SubmissionTraits("alice", 1, "main", "search", "resnet50")
OTHER = SubmissionTraits("alice", 1, "main", "debug", "vgg16")


def one_job(at: int) -> FloatColumn:
    return np.eye(BINS)[at]


@pytest.mark.parametrize("ratio", SPREAD_RATIOS)
def test_what_an_ended_job_makes_likely_adds_up_to_one_and_halves_with_each_step(ratio: float) -> None:
    spreads = Spreads((ratio,))
    rows = np.stack([spreads.spread(one_job(at), spreads.prior) for at in range(BINS)])
    assert rows.sum(axis=1) == pytest.approx(np.ones(BINS))
    assert rows.argmax(axis=1).tolist() == list(range(BINS)), "also at both ends"
    for at in (0, BINS // 2, BINS - 1):
        assert [spreads.weight_at(one_job(at), to)[0] for to in range(BINS)] == pytest.approx(rows[at])
        away = np.abs(np.arange(BINS) - at)
        parts = np.where(away, 0.0, 1.0) if ratio == 1 else 0.5 ** (away * math.log(STEP_RATIO) / math.log(ratio))
        assert rows[at] / rows[at, at] == pytest.approx(parts)


def test_before_anything_is_seen_the_usual_width_counts_most() -> None:
    spreads = Spreads()
    weights = spreads.prior
    assert weights.sum() == pytest.approx(1.0)
    assert weights[SPREAD_RATIOS.index(SPREAD_RATIO)] == pytest.approx(0.9)


def test_a_width_that_foresaw_better_counts_more_but_none_is_ever_sure() -> None:
    spreads = Spreads((1.0, SPREAD_RATIO))
    foreseen = np.array([0.4, 0.1])
    once = spreads.learn(spreads.prior, foreseen, keep=1.0)
    assert once.sum() == pytest.approx(1.0)
    assert once[0] / once[1] == pytest.approx(4.0 * spreads.prior[0] / spreads.prior[1]), "Bayes' rule"
    widths = spreads.prior
    for _ in range(1000):
        widths = spreads.learn(widths, foreseen, keep=0.98)
    assert 0.9 * 0.02 < widths[1] < 0.03


def distance(learner: RunTimeLearner, traits: SubmissionTraits, run_s: float) -> float:
    """Mean factor between what is expected and a time."""
    probability = learner.known(traits).probability
    return math.exp(float(probability @ np.abs(np.log(MIDDLES_S / run_s))))


def test_where_runs_repeat_exactly_the_distribution_becomes_narrow() -> None:
    """It stayed as wide as a factor of 1.8 however many jobs had ended."""
    learner = RunTimeLearner()
    for _ in range(40):
        learner.learn(SEARCH, 3500.0)
    assert distance(learner, SEARCH, 3500.0) < 1.15
    assert learner.known(SEARCH).probability[find_bins(np.array([3500.0]))[0]] > 0.9


def test_where_they_do_not_it_stays_wide_also_beside_jobs_that_repeat() -> None:
    learner, rng = RunTimeLearner(), np.random.default_rng(1)
    for run_s in rng.lognormal(8.0, 1.5, 200).tolist():
        learner.learn(OTHER, run_s)
        learner.learn(SEARCH, 3500.0)
    assert distance(learner, SEARCH, 3500.0) < 1.15
    likely = learner.known(OTHER).probability
    by_truth = rng.lognormal(8.0, 1.5, 2000)
    usual = RunTimeLearner(Spreads((SPREAD_RATIO,)))
    for run_s in np.random.default_rng(1).lognormal(8.0, 1.5, 200).tolist():
        usual.learn(OTHER, run_s)
    wanted = np.log(usual.known(OTHER).probability[find_bins(by_truth)]).mean()
    assert np.log(likely[find_bins(by_truth)]).mean() > wanted - 0.05


def test_a_new_group_begins_with_the_widths_of_its_owners_other_jobs() -> None:
    learner, fresh = RunTimeLearner(), RunTimeLearner()
    for at in range(60):
        learner.learn(SubmissionTraits("alice", 1, "main", "search", ("a", "b")[at % 2]), 3500.0)
    for each in (learner, fresh):
        each.learn(SubmissionTraits("alice", 8, "main", "search", "new"), 90_000.0)
    at = find_bins(np.array([90_000.0]))[0]
    asked = SubmissionTraits("alice", 8, "main", "search", "new")
    assert learner.known(asked).probability[at] > 1.5 * fresh.known(asked).probability[at]

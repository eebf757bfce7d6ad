"""Life tables against the definition, over samples and random distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import (
    BINS,
    EDGES_S,
    RemainingTimeCurve,
    find_bins,
)
from slurm_soda.policies.sharing.job_kinds import Source

probabilities = st.lists(st.floats(1e-9, 1.0), min_size=BINS, max_size=BINS).map(lambda p: np.array(p) / sum(p))


def test_bins_cover_a_second_to_a_year_and_take_what_is_beyond() -> None:
    assert find_bins(np.array([0.0, 0.5, 1.0, 365 * 86_400.0, 1e12])).tolist() == [0, 0, 1, BINS - 1, BINS - 1]
    inside = np.sqrt(EDGES_S[1:-1] * EDGES_S[2:])
    assert find_bins(inside).tolist() == list(range(1, BINS))


@given(probabilities)
def test_the_total_is_the_median_of_what_is_still_possible(probability: np.ndarray) -> None:
    curve = RemainingTimeCurve.of(probability)
    past = np.concatenate(([0.0], np.cumsum(probability)))
    for edge in range(0, BINS, 7):
        # The part of what is left at this edge that ends before the total, by the distribution itself.
        total = curve.total_s[edge]
        at = min(int(np.searchsorted(EDGES_S, total, side="right")) - 1, BINS - 1)
        low = max(EDGES_S[at], 1 / 1.2)
        share = np.log(max(total, low) / low) / np.log(EDGES_S[at + 1] / low)
        before = past[at] + share * probability[at] - past[edge]
        alive = 1.0 - past[edge]
        if alive > 1e-6:
            assert before / alive == pytest.approx(0.5, abs=1e-3)


@given(probabilities, st.floats(0.0, 1e9))
def test_something_is_always_left_and_totals_never_fall(probability: np.ndarray, attained_s: float) -> None:
    curve = RemainingTimeCurve.of(probability)
    assert (np.diff(curve.total_s) >= 0).all()
    assert (curve.total_s >= EDGES_S).all()
    assert (curve.error_s >= 0).all()
    left = curve.remaining(attained_s)
    assert left.value >= 1.0
    assert left.error >= 0.0
    assert left.source is Source.PREDICTED


def test_two_kinds_of_jobs_under_one_name_are_told_apart_by_the_time_they_ran() -> None:
    learner, traits = RunTimeLearner(), SubmissionTraits("alice", 1)
    for at in range(100):
        learner.learn(traits, 90_000.0 if at % 10 == 5 else 100.0)
    curve = learner.known(traits).curve
    assert curve.remaining(0.0).value == pytest.approx(100.0, rel=0.25)
    assert curve.remaining(1000.0).value == pytest.approx(89_000.0, rel=0.25)


@given(probabilities, st.integers(0, BINS - 2), st.floats(0.0, 1.0))
def test_between_two_edges_half_of_what_is_still_possible_is_longer(
    probability: np.ndarray, at: int, share: float
) -> None:
    """Times inside a bin are spread evenly in their logarithm."""
    curve, past = RemainingTimeCurve.of(probability), np.concatenate(([0.0], np.cumsum(probability)))

    def below(time_s: float) -> float:
        bin_of, low_s = int(find_bins(np.array([time_s]))[0]), 1 / 1.2
        low_s = max(EDGES_S[bin_of], low_s)
        inside = np.log(max(time_s, low_s) / low_s) / np.log(EDGES_S[bin_of + 1] / low_s)
        return float(past[bin_of] + min(inside, 1.0) * probability[bin_of])

    attained_s = float(EDGES_S[at] + share * (EDGES_S[at + 1] - EDGES_S[at]))
    left_s = curve.remaining(attained_s).value
    if left_s > 1.0 and 1.0 - below(attained_s) > 1e-6:
        assert below(attained_s + left_s) - below(attained_s) == pytest.approx(
            0.5 * (1.0 - below(attained_s)), rel=1e-3, abs=1e-9
        )


def test_who_outlives_the_usual_time_of_its_like_by_a_little_is_expected_to_end_soon() -> None:
    learner, traits = RunTimeLearner(), SubmissionTraits("alice", 1)
    for _ in range(200):
        learner.learn(traits, 3600.0)
    curve = learner.known(traits).curve
    assert curve.remaining(3500.0).value < 300.0
    assert curve.remaining(0.0).value == pytest.approx(3600.0, rel=0.1)

"""A table of jobs at once says the same as each job's own curve."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.policies.run_times import batch_prediction as forecast_module
from slurm_soda.policies.run_times.batch_prediction import RENEW_JOBS, BatchRunTimePredictor
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.remaining_time_curve import EDGES_S


def test_a_column_is_what_each_curve_says() -> None:
    forecast, rng = BatchRunTimePredictor(), np.random.default_rng(1)
    kinds = [SubmissionTraits(f"u{number}", 1 + number % 4) for number in range(100)]
    for at, run_s in enumerate(rng.lognormal(7, 2, 3000).tolist()):
        forecast.ended(kinds[at % 37], run_s)
    numbers = np.array([forecast.number(kind) for kind in kinds])
    attained_s = rng.lognormal(6, 3, len(kinds))
    attained_s[::3] = 0.0
    left_s = forecast.remaining(numbers, attained_s)
    for at, kind in enumerate(kinds):
        assert forecast.learner.known(kind).curve.remaining(float(attained_s[at])).value == pytest.approx(left_s[at])


def test_running_jobs_tell_of_run_times_before_any_has_ended() -> None:
    forecast, kind = BatchRunTimePredictor(), SubmissionTraits("alice", 1)
    ids, numbers, attained_s = np.arange(8), np.full(8, forecast.number(kind)), np.full(8, 60.0)
    assert np.isfinite(forecast.remaining(numbers, attained_s)).all()
    before = forecast.expected(numbers, attained_s).probability[0]
    for reached_s in np.geomspace(60.0, 5000.0, 40):
        forecast.observe(ids, numbers, np.full(8, reached_s))
        forecast.remaining(numbers, attained_s)
    after = forecast.expected(numbers, attained_s)
    shorter = EDGES_S[1:] < 4000.0
    assert after.probability[0][shorter].sum() < 0.25 * before[shorter].sum()
    assert after.kind.tolist() == [0] * 8


def test_a_curve_follows_its_owners_jobs() -> None:
    forecast, kind = BatchRunTimePredictor(), SubmissionTraits("alice", 1)
    for at in range(100):
        forecast.ended(SubmissionTraits(("bob", "carol", "dave")[at % 3], 1), 100.0)
    number = np.array([forecast.number(kind)])
    before = forecast.remaining(number, np.zeros(1))[0]
    for _ in range(3 * RENEW_JOBS):
        forecast.ended(kind, 50_000.0)
    assert forecast.remaining(number, np.zeros(1))[0] > 10 * before
    assert forecast.known(int(number[0])).jobs >= RENEW_JOBS


def test_numbers_are_given_anew_after_all_is_forgotten() -> None:
    forecast = BatchRunTimePredictor()
    assert [forecast.number(SubmissionTraits(name, 1)) for name in ("a", "b", "a")] == [0, 1, 0]
    forecast.ended(SubmissionTraits("a", 1), 3600.0)
    forecast.forget()
    assert forecast.number(SubmissionTraits("b", 1)) == 0
    assert forecast.learner.learnt == 1


def test_kinds_are_bounded_whatever_users_call_their_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_module, "MAX_KINDS", 10)
    forecast = BatchRunTimePredictor()
    words = ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(100)]
    numbers = [forecast.number(SubmissionTraits("alice", 1, name=word)) for word in words]
    assert len(forecast) == 11
    assert set(numbers[11:]) == {10}
    limits = [SubmissionTraits("alice", 1, limit_s=60.0 * minutes) for minutes in range(1, 100)]
    assert {forecast.number(traits) for traits in limits} == {10}, "nor by how many limits they give"
    assert forecast.number(SubmissionTraits("alice", 1, name="sweep-1")) == forecast.number(
        SubmissionTraits("alice", 1, name="sweep-2")
    )


def test_few_curves_are_renewed_at_once_and_the_rest_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_module, "MAX_RENEWED", 3)
    forecast = BatchRunTimePredictor()
    numbers = np.array([forecast.number(SubmissionTraits(f"u{at}", 1)) for at in range(8)])
    for owner in "xyzxy":
        forecast.ended(SubmissionTraits(owner, 1), 100.0)
    changed = []
    for _ in range(3):
        before = forecast._median_s[numbers].copy()
        forecast.remaining(numbers, np.zeros(8))
        changed.append(int((forecast._median_s[numbers] != before).sum()))
    assert changed == [3, 3, 2]

"""Predicted slowdowns of pairs, on tables of known structure."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.interference import fit_held_out, fit_interference
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from slurm_soda.policies.sharing.prediction.predicted_interference import HeldOutInterference, collect_pairs
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable
from tests.learning.tables import table

SMOOTH = table()


@cache
def held_out() -> HeldOutInterference:
    return fit_held_out(SMOOTH, "fast")


@pytest.mark.thorough
def test_every_pair_that_fits_is_predicted_without_itself_and_well() -> None:
    errors = []
    for (slowed, other), found in held_out().pairs.items():
        truth = SMOOTH.slowdown(slowed, other)
        assert truth is not None
        assert found.source == Source.PREDICTED
        errors.append(abs(found.value - truth) / (truth - 1))
    assert len(errors) == len(collect_pairs(SMOOTH, "fast"))
    assert np.mean(errors) < 0.05


@pytest.mark.thorough
def test_a_pair_that_lies_shows_only_in_what_it_does_not_predict() -> None:
    """One pair measured wrongly by far: its own prediction must not move at all with it."""
    liars = {key: both for key, both in SMOOTH.shared.items() if key[0].gpu_type == "fast"}
    one, other = JobKind("Talk", 16, "fast"), JobKind("Deep-18", 16, "fast")
    for key in ((one, other), (other, one)):
        liars[key] = (liars[key][0] / 3, liars[key][1] / 3)
    lying = fit_held_out(SpeedTable(SMOOTH.alone, liars), "fast")
    for key in ((one, other), (other, one)):
        assert lying.pairs[key].value == pytest.approx(held_out().pairs[key].value, rel=1e-6)
    assert max(abs(lying.pairs[key].value - found.value) for key, found in held_out().pairs.items()) > 0.005


def test_a_batch_that_nobody_measured_learns_nothing_of_the_pair_next_to_it() -> None:
    pair = JobKind("Talk", 32, "fast"), JobKind("Wide", 16, "fast")
    assert held_out().xi(JobKind("Talk", 30, "fast", gpus=4), (pair[1],)) == held_out().pairs[pair]
    assert held_out().xi(JobKind("Nobody", 30, "fast"), (pair[1],)) is None


def test_a_model_may_be_there_with_batches_and_without() -> None:
    """As ``('Talk', 1)`` beside ``('Talk (batch size 16)', 1)``."""
    plain, wide = JobKind("Talk", 0, "fast"), JobKind("Wide", 16, "fast")
    mixed = SpeedTable(
        {**SMOOTH.alone, plain: 30.0}, {**SMOOTH.shared, (plain, wide): (20.0, SMOOTH.alone[wide] / 1.5)}
    )
    found = fit_interference(mixed, "fast").xi(plain, (wide,))
    assert found is not None
    assert found.value >= 1.0


@pytest.mark.thorough
def test_it_is_the_same_each_time() -> None:
    assert fit_held_out(SMOOTH, "fast").pairs == held_out().pairs


def test_several_others_add_up_and_unknown_jobs_are_unknown() -> None:
    model = fit_interference(SMOOTH, "fast")
    one, two = JobKind("Talk", 16, "fast"), JobKind("Deep-18", 32, "fast")
    both, first, second = model.xi(one, (one, two)), model.xi(one, (one,)), model.xi(one, (two,))
    assert both is not None
    assert first is not None
    assert second is not None
    assert both.value == pytest.approx(first.value + second.value - 1)
    assert model.xi(one, (JobKind("Nobody", 1, "fast"),)) is None
    assert model.xi(one, (JobKind("Talk", 16, "slow"),)) is None
    alone = model.xi(one, ())
    assert alone is not None
    assert (alone.value, alone.error) == (1.0, 0.0)


def test_a_batch_between_two_is_predicted_between_them() -> None:
    model, other = fit_interference(SMOOTH, "fast"), JobKind("Deep-50", 64, "fast")
    found = [model.xi(JobKind("Wide", batch, "fast"), (other,)) for batch in (32, 48, 64)]
    values = [one.value for one in found if one is not None]
    assert len(values) == 3
    assert min(values[0], values[2]) - 0.01 <= values[1] <= max(values[0], values[2]) + 0.01


def test_too_little_is_refused() -> None:
    with pytest.raises(PolicyError, match="no speed was measured on one GPU of type 'new'; the table has: fast, slow"):
        fit_interference(SMOOTH, "new")
    bare = SpeedTable(SMOOTH.alone, {})
    with pytest.raises(LearningError, match="3 or more different pairs"):
        fit_interference(bare, "fast")
    with pytest.raises(LearningError, match="less than 3 pairs of jobs on one GPU of a type that fit: measure more"):
        fit_interference(bare)
    with pytest.raises(LearningError, match="3 or more different pairs"):
        fit_held_out(bare, "fast")
    few = SpeedTable(SMOOTH.alone, dict(list(SMOOTH.shared.items())[:4]))
    assert set(fit_interference(few).models) == {"fast"}
    with pytest.raises(LearningError, match="10 pairs have to be measured to judge predictions of them, not 4"):
        fit_held_out(few, "fast")


def test_slowdowns_that_are_all_alike_are_not_said_to_be_exact() -> None:
    alike = {key: (SMOOTH.alone[key[0]] / 1.5, SMOOTH.alone[key[1]] / 1.5) for key in SMOOTH.shared}
    found = fit_interference(SpeedTable(SMOOTH.alone, alike), "fast").xi(
        JobKind("Talk", 16, "fast"), (JobKind("Wide", 16, "fast"),)
    )
    assert found is not None
    assert found.value == pytest.approx(1.5, rel=1e-3)
    assert found.error > 0

"""Whom to believe."""

from __future__ import annotations

import itertools
import math

import pytest

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source, TimeSlicingPrior, most_trusted

RESNET, VGG = JobKind("resnet18", 64, "v100"), JobKind("vgg11", 128, "v100")


def test_the_better_source_counts_then_the_smaller_error() -> None:
    measured, rough = Estimate(1.4, 0.5, Source.MEASURED), Estimate(1.3, 0.6, Source.MEASURED)
    imported, predicted = Estimate(1.1, 0.01, Source.IMPORTED), Estimate(1.2, 0.0, Source.PREDICTED)
    for order in itertools.permutations([measured, rough, imported, predicted, None]):
        assert most_trusted(order) is measured
    assert most_trusted([predicted, imported]) is imported
    assert most_trusted([None]) is None


def test_the_prior_is_that_jobs_take_turns() -> None:
    prior = TimeSlicingPrior()
    assert prior.xi(VGG, []) == Estimate(1.0, 0.0, Source.PRIOR)
    asked = [prior.xi(VGG, [VGG]), prior.xi(VGG, [RESNET, RESNET])]
    assert [(told.value, told.source) for told in asked] == [(2.0, Source.PRIOR), (3.0, Source.PRIOR)]


def test_caution() -> None:
    assert Estimate(1.2, 0.1, Source.PREDICTED).plus_errors(2) == pytest.approx(1.4)
    assert Estimate(1.2, math.inf, Source.PREDICTED).plus_errors(0) == 1.2
    assert Estimate(1.2, math.inf, Source.PREDICTED).plus_errors(1) == math.inf


@pytest.mark.parametrize(("value", "error"), [(math.nan, 0.1), (math.inf, 0.1), (1.0, -0.1), (1.0, math.nan)])
def test_estimates_are_numbers(value: float, error: float) -> None:
    with pytest.raises(PolicyError):
        Estimate(value, error, Source.MEASURED)

"""Whom to believe."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import (
    Estimate,
    JobKind,
    MostTrustedEstimator,
    Source,
    TimeSlicingPrior,
    most_trusted,
    slowdown_ratio,
)

RESNET, VGG = JobKind("resnet18", 64, "v100"), JobKind("vgg11", 128, "v100")


@dataclass(frozen=True)
class Table:
    known: dict[tuple[JobKind, JobKind], Estimate]

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        return self.known.get((slowed, others[0])) if len(others) == 1 else None


def test_the_better_source_counts_then_the_smaller_error() -> None:
    measured, rough = Estimate(1.4, 0.5, Source.MEASURED), Estimate(1.3, 0.6, Source.MEASURED)
    imported, predicted = Estimate(1.1, 0.01, Source.IMPORTED), Estimate(1.2, 0.0, Source.PREDICTED)
    for order in itertools.permutations([measured, rough, imported, predicted, None]):
        assert most_trusted(order) is measured
    assert most_trusted([predicted, imported]) is imported
    assert most_trusted([None]) is None


def test_sources_fall_back_to_the_prior() -> None:
    here = Table({(RESNET, VGG): Estimate(1.25, 0.02, Source.MEASURED)})
    elsewhere = Table(
        {(RESNET, VGG): Estimate(1.5, 0.0, Source.IMPORTED), (VGG, RESNET): Estimate(1.1, 0.0, Source.IMPORTED)}
    )
    known = MostTrustedEstimator((TimeSlicingPrior(), elsewhere, here))
    asked = [known.xi(RESNET, [VGG]), known.xi(VGG, [RESNET]), known.xi(VGG, [VGG]), known.xi(VGG, [RESNET, RESNET])]
    assert [(told.value, told.source) for told in asked if told] == [
        (1.25, Source.MEASURED),
        (1.1, Source.IMPORTED),
        (2.0, Source.PRIOR),
        (3.0, Source.PRIOR),
    ]
    assert MostTrustedEstimator(()).xi(VGG, [VGG]) is None
    assert TimeSlicingPrior().xi(VGG, []) == Estimate(1.0, 0.0, Source.PRIOR)


def test_caution() -> None:
    assert Estimate(1.2, 0.1, Source.PREDICTED).plus_errors(2) == pytest.approx(1.4)
    assert Estimate(1.2, math.inf, Source.PREDICTED).plus_errors(0) == 1.2
    assert Estimate(1.2, math.inf, Source.PREDICTED).plus_errors(1) == math.inf


def test_xi_from_two_times() -> None:
    found = slowdown_ratio(Estimate(0.3, 0.03, Source.MEASURED), Estimate(0.2, 0.0, Source.PREDICTED))
    assert (found.value, found.error, found.source) == (pytest.approx(1.5), pytest.approx(0.15), Source.PREDICTED)
    with pytest.raises(PolicyError):
        slowdown_ratio(Estimate(0.3, 0.0, Source.MEASURED), Estimate(0.0, 0.0, Source.MEASURED))


@pytest.mark.parametrize(("value", "error"), [(math.nan, 0.1), (math.inf, 0.1), (1.0, -0.1), (1.0, math.nan)])
def test_estimates_are_numbers(value: float, error: float) -> None:
    with pytest.raises(PolicyError):
        Estimate(value, error, Source.MEASURED)

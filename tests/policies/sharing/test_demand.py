"""OJPP's memory model against enumeration, and demands fitted from samples."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.memory_demand import (
    MemoryDemand,
    collision_probability,
    fit_demand,
    fit_together,
    gregariousness,
)

chances = st.floats(0.0, 1.0)


def enumerated(probabilities: list[float]) -> float:
    """Sum over all combinations of peaks with two or more of them."""
    total = 0.0
    for peaks in itertools.product((False, True), repeat=len(probabilities)):
        if sum(peaks) >= 2:
            total += math.prod(p if peak else 1 - p for p, peak in zip(probabilities, peaks, strict=True))
    return total


@given(st.lists(chances, max_size=8))
def test_collisions_against_enumeration(probabilities: list[float]) -> None:
    assert collision_probability(probabilities) == pytest.approx(enumerated(probabilities), abs=1e-12)


@given(st.lists(chances, max_size=8), chances)
def test_one_more_worker_never_makes_collisions_rarer(probabilities: list[float], more: float) -> None:
    assert collision_probability([*probabilities, more]) >= collision_probability(probabilities) - 1e-12


@given(st.lists(chances, max_size=20))
def test_gregariousness_is_the_worst_collision_with_another(probabilities: list[float]) -> None:
    found = gregariousness(np.array(probabilities))
    for number, value in enumerate(found):
        others = probabilities[:number] + probabilities[number + 1 :]
        assert value == pytest.approx(
            max((collision_probability([probabilities[number], p]) for p in others), default=0.0)
        )


@given(st.lists(chances, min_size=2, max_size=20))
def test_taking_jobs_out_never_changes_the_order_of_gregariousness(probabilities: list[float]) -> None:
    """So the heuristic of OJPP may sort once, where the paper sorts in every round."""
    order = sorted(range(len(probabilities)), key=lambda row: probabilities[row])
    for taken in range(len(probabilities)):
        rest = [probabilities[row] for row in order[taken:]]
        found = gregariousness(np.array(rest))
        assert all(before <= after + 1e-15 for before, after in itertools.pairwise(found))


def test_one_peak_at_a_time_has_room() -> None:
    resnet = MemoryDemand(0.3, 0.62, 0.2)  # the paper's example
    assert resnet.mean == pytest.approx(0.424)
    assert fit_together([resnet, MemoryDemand(0.08, 0.5, 0.1)])
    assert not fit_together([resnet, MemoryDemand(0.09)])
    assert fit_together([MemoryDemand(0.1)] * 10)
    assert fit_together([])


def test_the_papers_example_is_recovered() -> None:
    samples = [0.3 * 11_000] * 80 + [0.92 * 11_000] * 20
    random.Random(1).shuffle(samples)
    fit = fit_demand(samples, 11_000)
    assert (fit.demand.base, fit.demand.extra) == (pytest.approx(0.3), pytest.approx(0.62))
    assert fit.demand.probability == pytest.approx(0.2)
    assert fit.probability_error == pytest.approx(0.04)
    assert fit.slack == pytest.approx(0.0, abs=1e-12)


@given(st.lists(st.floats(0.0, 16_000.0), min_size=1, max_size=200))
def test_a_fitted_demand_never_understates_a_sample(samples: list[float]) -> None:
    fit = fit_demand(samples, 16_000.0)
    levels = np.array(samples) / 16_000.0
    assert levels.max() <= fit.demand.base + fit.demand.extra + 1e-9
    assert np.mean(levels > fit.demand.base + 1e-9) <= fit.demand.probability + 1e-9
    assert fit.slack >= -1e-9
    assert fit.demand.mean <= levels.max() + 1e-9  # no worse than one level


def test_no_two_levels_cover_the_samples_with_less() -> None:
    rng = random.Random(4)
    for _ in range(100):
        samples = [rng.choice((rng.uniform(0, 5), rng.uniform(0, 16))) for _ in range(rng.randint(2, 30))]
        fit = fit_demand(samples, 16.0)
        least = min(
            (base * sum(one <= base for one in samples) + max(samples) * sum(one > base for one in samples))
            for base in samples
        )
        if fit.demand.extra:
            assert fit.demand.mean * 16 * len(samples) == pytest.approx(least)


def test_probability_is_near_the_truth() -> None:
    rng = random.Random(2)
    for p in (0.05, 0.3, 0.6):
        samples = [(4.0 if rng.random() > p else 11.0) + rng.uniform(-0.05, 0) for _ in range(2_000)]
        fit = fit_demand(samples, 16.0)
        assert abs(fit.demand.probability - p) < 4 * fit.probability_error + 1e-9


def test_steady_use_has_no_peaks() -> None:
    rng = random.Random(3)
    fit = fit_demand([8.0 + rng.uniform(-0.05, 0.05) for _ in range(100)], 16.0)
    assert (fit.demand.extra, fit.demand.probability) == (0.0, 0.0)


@pytest.mark.parametrize(("samples", "device"), [([], 16.0), ([1.0], 0.0), ([-1.0], 16.0), ([17.0], 16.0)])
def test_senseless_samples_are_refused(samples: list[float], device: float) -> None:
    with pytest.raises(PolicyError):
        fit_demand(samples, device)


def test_senseless_demands_are_refused() -> None:
    for values in ((-0.1,), (0.5, 0.6, 0.1), (0.5, 0.1, 1.5), (math.nan,)):
        with pytest.raises(PolicyError):
            MemoryDemand(*values)
    with pytest.raises(PolicyError):
        collision_probability([0.5, 1.5])

"""Measurements of gangs, and when a settled job is searched anew."""

from __future__ import annotations

import random

import pytest

from slurm_soda.policies.cpu_fit.measurement import Measurement, combine_nodes
from slurm_soda.policies.cpu_fit.phase_watch import PhaseWatchRules, entered_new_phase
from slurm_soda.policies.errors import PolicyError

STABLE = Measurement(6, 0.8, 0.05)


@pytest.mark.parametrize(
    ("recent", "anew"),
    [
        ([0.8] * 10, False),
        ([0.6] * 10, True),
        ([0.95] * 10, True),
        ([0.6] * 9, False),
        ([0.6] * 10 + [0.8] * 10, False),
        ([0.8] * 30 + [0.6] * 10, True),
        ([0.6] * 9 + [0.81], False),
        ([0.74] * 10, False),
        ([0.0] * 10, False),
        ([0.6] * 9 + [0.0], False),
        ([], False),
    ],
)
def test_a_lasting_departure_calls_for_a_search(recent: list[float], anew: bool) -> None:
    assert entered_new_phase(STABLE, recent) == anew


def test_rules_set_how_many_samples_and_how_far() -> None:
    assert entered_new_phase(STABLE, [0.725] * 10, PhaseWatchRules(departure_ratio=0.05))
    assert not entered_new_phase(STABLE, [0.725] * 10)
    assert entered_new_phase(STABLE, [0.6] * 3, PhaseWatchRules(samples=3))
    assert not entered_new_phase(STABLE, [0.6] * 10, PhaseWatchRules(departure_ratio=0.3))


def test_a_noisy_job_is_not_searched_for_its_noise() -> None:
    """A day of samples every 10 s with a deviation of a quarter of the level."""
    rng = random.Random(2)
    noisy = Measurement(6, 0.6, 0.15)
    day = [min(max(rng.gauss(0.6, 0.15), 0.02), 1.0) for _ in range(8640)]
    assert not any(entered_new_phase(noisy, day[at : at + 10]) for at in range(len(day) - 9))


@pytest.mark.parametrize(("samples", "departure"), [(0, 0.1), (5, 0.0), (5, float("nan"))])
def test_rules_that_are_refused(samples: int, departure: float) -> None:
    with pytest.raises(PolicyError, match="at least 1 sample"):
        PhaseWatchRules(samples, departure)


def test_nodes_of_a_gang_are_one_measurement_weighted_by_gpus() -> None:
    one = combine_nodes([(Measurement(4, 0.9, 0.02, 60), 3), (Measurement(4, 0.5, 0.08, 55), 1)])
    assert (one.cores, one.samples, one.spread_ratio) == (4, 55, 0.08)
    assert one.utilisation_ratio == pytest.approx(0.8)


@pytest.mark.parametrize(
    "parts", [[], [(Measurement(4, 0.5), 1), (Measurement(5, 0.5), 1)], [(Measurement(4, 0.5), 0)]]
)
def test_nodes_that_cannot_be_one_job(parts: list[tuple[Measurement, int]]) -> None:
    with pytest.raises(PolicyError, match="equally many cores"):
        combine_nodes(parts)


@pytest.mark.parametrize(
    "values", [(0, 0.5), (1, 1.1), (1, -0.1), (1, float("nan")), (1, 0.5, -1.0), (1, 0.5, float("nan")), (1, 0.5, 0, 0)]
)
def test_values_that_no_measurement_has(values: tuple[float, ...]) -> None:
    with pytest.raises(PolicyError):
        Measurement(*values)  # type: ignore[arg-type]


def test_a_calm_measurement_is_still_not_believed_to_the_last_digit() -> None:
    assert Measurement(1, 0.5).noise_ratio == pytest.approx(0.005)
    assert Measurement(1, 0.0).noise_ratio > 0
    assert Measurement(1, 0.5, 0.3, 9).noise_ratio == pytest.approx(0.1)

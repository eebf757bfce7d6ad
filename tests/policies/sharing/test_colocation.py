"""Co-location by occupancy: the line and the threshold fitted from data."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.colocation.speedup_models import GpuLoad, LinearSpeedup, fit_speedup, fit_threshold


def test_a_linear_law_is_recovered() -> None:
    rng = random.Random(1)
    law = LinearSpeedup(1.9, -0.02, -0.03)
    data = [GpuLoad(rng.uniform(1, 40), rng.uniform(1, 40)) for _ in range(60)]
    found = fit_speedup([(load, law.predicted(load) + rng.gauss(0, 0.01)) for load in data])
    assert found.constant == pytest.approx(1.9, abs=0.02)
    assert (found.by_occupancy, found.by_bandwidth) == (pytest.approx(-0.02, abs=1e-3), pytest.approx(-0.03, abs=1e-3))
    assert found.misfit == pytest.approx(0.01, abs=0.005)


def test_collinear_measures_still_predict() -> None:
    # C and M are correlated in the thesis; here one is twice the other
    data = [GpuLoad(value, 2 * value) for value in range(1, 20)]
    found = fit_speedup([(load, 2.0 - 0.05 * load.occupancy_s) for load in data])
    assert found.predicted(GpuLoad(10.0, 20.0)) == pytest.approx(1.5)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from((0.8, 1.0, 1.2))), min_size=2, max_size=25))
def test_no_line_puts_fewer_on_the_wrong_side(data: list[tuple[int, float]]) -> None:
    found = fit_threshold([(GpuLoad(float(value)), delta) for value, delta in data])

    def wrong(line: float) -> float:
        return sum((value <= line) != (delta > 1) for value, delta in data) / len(data)

    assert found.wrong == pytest.approx(wrong(found.most_occupancy_s)) or found.most_occupancy_s == 0.0
    assert found.wrong <= min(wrong(line / 2 - 0.5) for line in range(45)) + 1e-12


def test_too_few_measurements_are_refused() -> None:
    with pytest.raises(PolicyError, match="3 measurements"):
        fit_speedup([(GpuLoad(1.0), 1.0)] * 2)
    with pytest.raises(PolicyError):
        fit_threshold([(GpuLoad(1.0), float("nan")), (GpuLoad(1.0), 1.0)])

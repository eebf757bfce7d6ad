"""The Gittins index against its definition, summed job by job."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.tiresias.gittins import compute_gittins_index


def by_definition(attained: int, quantum: float, samples: list[int]) -> Fraction:
    """P(S - a <= D | S > a) / E[min(S - a, D) | S > a]."""
    left = [sample - attained for sample in samples if sample > attained]
    if not left:
        return Fraction(0)
    ending = Fraction(sum(value <= quantum for value in left), len(left))
    spent = Fraction(sum(value if value <= quantum else int(quantum) for value in left), len(left))
    return ending / spent


@given(
    samples=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    attained=st.integers(0, 70),
    quantum=st.one_of(st.integers(1, 70), st.just(float("inf"))),
)
def test_index_equals_its_definition(samples: list[int], attained: int, quantum: float) -> None:
    index = compute_gittins_index(
        np.array([float(attained)]), np.array([quantum]), np.sort(np.array(samples, dtype=float))
    )
    assert index[0] == pytest.approx(float(by_definition(attained, quantum, samples)), rel=1e-12)


# Distribution 4, 8, 12 as in Appendix C: (attained, quantum, index)
@pytest.mark.parametrize(
    ("attained", "quantum", "index"),
    [(0, 4, 1 / 12), (2, 4, 1 / 10), (3, 4, 1 / 9), (4, 8, 1 / 6), (7, 8, 1 / 3), (8, np.inf, 1 / 4), (12, np.inf, 0)],
)
def test_index_of_the_papers_distribution(attained: float, quantum: float, index: float) -> None:
    value = compute_gittins_index(
        np.array([attained], dtype=float), np.array([quantum], dtype=float), np.array([4.0, 8.0, 12.0])
    )
    assert value[0] == pytest.approx(index)

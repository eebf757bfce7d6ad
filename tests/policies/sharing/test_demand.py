"""OJPP's memory model against enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.memory_demand import MemoryDemand, collision_probability, gregariousness

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


def test_senseless_demands_are_refused() -> None:
    for values in ((-0.1,), (0.5, 0.6, 0.1), (0.5, 0.1, 1.5), (math.nan,)):
        with pytest.raises(PolicyError):
            MemoryDemand(*values)
    with pytest.raises(PolicyError):
        collision_probability([0.5, 1.5])

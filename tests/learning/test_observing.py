"""What is seen at run time changes predictions at once."""

from __future__ import annotations

import pytest
from slurm_soda.learning.interference import fit_interference
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.knowledge import Workload
from slurm_soda.policies.sharing.predicting.observing import observing
from slurm_soda.policies.sharing.predicting.prediction import Predicted

from tests.learning.tables import table

BEFORE = fit_interference(table(noise=0.02), "fast")
ONE, OTHER = Workload("Talk", 16, "fast"), Workload("Wide", 16, "fast")
NEW = Workload("Paint", 8, "fast")


def value(predicted: Predicted, slowed: Workload, other: Workload) -> float:
    found = predicted.xi(slowed, (other,))
    assert found is not None
    return found.value


def test_a_pair_that_was_seen_moves_towards_it_and_its_neighbours_less() -> None:
    before = value(BEFORE, ONE, OTHER)
    after = observing(BEFORE, [(ONE, OTHER, 2 * before)])
    near, far = Workload("Talk", 32, "fast"), Workload("Deep-50", 64, "fast")
    moved = {kind: abs(value(after, kind, OTHER) / value(BEFORE, kind, OTHER) - 1) for kind in (ONE, near, far)}
    assert before < value(after, ONE, OTHER) <= 2 * before
    assert moved[ONE] > moved[near] > moved[far]
    assert value(BEFORE, ONE, OTHER) == before


def test_the_last_one_counts_and_other_types_of_gpu_are_not_concerned() -> None:
    twice = observing(BEFORE, [(ONE, OTHER, 9.0), (ONE, OTHER, 1.2), (Workload("Talk", 16, "slow"), OTHER, 7.0)])
    assert value(twice, ONE, OTHER) == pytest.approx(value(observing(BEFORE, [(ONE, OTHER, 1.2)]), ONE, OTHER))
    assert observing(BEFORE, []).xi(ONE, (OTHER,)) == BEFORE.xi(ONE, (OTHER,))


def test_a_kind_that_was_unknown_is_known_once_it_was_seen() -> None:
    assert BEFORE.xi(NEW, (OTHER,)) is None
    after = observing(BEFORE, [(NEW, OTHER, 3.0), (OTHER, NEW, 1.0)])
    assert value(after, NEW, OTHER) > value(after, OTHER, NEW)
    beside_another = after.xi(NEW, (ONE,))
    assert beside_another is not None
    assert beside_another.error > 0


def test_a_slowdown_is_a_positive_number() -> None:
    with pytest.raises(PolicyError, match="positive number, not 0"):
        observing(BEFORE, [(ONE, OTHER, 0)])

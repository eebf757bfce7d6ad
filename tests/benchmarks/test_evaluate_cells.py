"""The matrix: which cells, and that its design is balanced."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from benchmarks.evaluate import cells
from slurm_soda.policies.errors import PolicyError
from slurm_soda.simulator.generators.registry import workload_names

FACTORS = ("family", "can_checkpoint", "consent", "load")


def test_any_two_levels_meet_equally_often() -> None:
    found = cells.balanced_cells()
    assert len(set(found)) == 18
    for one, other in itertools.combinations(FACTORS, 2):
        met = Counter((getattr(cell, one), getattr(cell, other)) for cell in found)
        levels = len({getattr(cell, one) for cell in found}) * len({getattr(cell, other) for cell in found})
        assert len(met) == levels
        assert set(met.values()) == {18 // levels}
    assert all(cell.is_real for cell in found)


def test_there_are_forty_cells() -> None:
    found = cells.all_cells()
    assert len(found) == len({cell.name for cell in found}) == 40
    assert {cell.family for cell in found} == set(cells.FAMILIES) <= set(workload_names())


@pytest.mark.parametrize("family", cells.FAMILIES)
def test_each_family_has_a_new_site_and_its_bounds(family: str) -> None:
    found = [cell for cell in cells.all_cells() if cell.family == family]
    assert [cell for cell in found if cell.is_real and (cell.can_checkpoint, cell.consent) == (0, 0.5)]
    everybody = [cell for cell in found if cell.is_real and cell.can_checkpoint == 1]
    assert len(everybody) == 1
    for changes in ({"knowledge": cells.TRUTH}, {"mechanism": "ideal"}):
        other = cells.partner(everybody[0], tuple(found), **changes)
        assert other is not None
        assert not other.is_real


def test_a_quick_look_has_every_family_and_every_level() -> None:
    found = cells.quick_cells()
    assert [cell.family for cell in found] == list(cells.FAMILIES)
    assert set(Counter(cell.can_checkpoint for cell in found).values()) == {2}
    assert {cell.consent for cell in found} == set(cells.CONSENT)
    assert {cell.load for cell in found} == set(cells.LOADS)


def test_a_policy_that_is_missing_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "POLICIES", (cells.STOCK, "not-yet", "srsf"))
    with pytest.raises(PolicyError, match="not-yet"):
        cells.choose_policies()
    assert cells.choose_policies(("not-yet",)) == (cells.STOCK, "srsf")

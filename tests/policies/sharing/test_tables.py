"""What a table of measured speeds tells about pairs; its form is tested with the simulator's reader."""

from __future__ import annotations

import pytest

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from slurm_soda.policies.sharing.prediction.speed_tables import parse_speed_table

DOCUMENT = {
    "v100": {
        "('A (batch size 8)', 1)": {"null": 4.0, "('B', 1)": [2.0, 5.0], "('A (batch size 8)', 1)": [0.0, 0.0]},
        "('B', 1)": {"null": 6.0, "('B', 1)": [6.6, 6.6]},
        "('B', 2)": {"null": 11.0},
        "('C', 1)": {"null": 0.0},
    }
}
TABLE = parse_speed_table(DOCUMENT)
A, B, C, BIG = (JobKind(*key) for key in (("A", 8, "v100"), ("B", 0, "v100"), ("C", 0, "v100"), ("B", 0, "v100", 2)))


def test_a_pair_speaks_for_both_orders() -> None:
    assert TABLE.slowdown(A, B) == pytest.approx(2.0)
    assert TABLE.slowdown(B, A) == pytest.approx(1.2)
    assert TABLE.kinds("v100") == (A, B, C)
    assert TABLE.kinds("v100", 2) == (BIG,)


def test_estimates_are_imported_and_at_least_1() -> None:
    xi = TABLE.xi(B, (B,))
    assert xi is not None
    assert (xi.value, xi.source) == (1.0, Source.IMPORTED)
    assert TABLE.slowdown(B, B) == pytest.approx(1 / 1.1)
    assert TABLE.xi(A, ()) is not None


@pytest.mark.parametrize("others", [(A,), (C,), (BIG,), (B, B)])
def test_what_was_not_measured_or_does_not_fit_has_no_slowdown(others: tuple[JobKind, ...]) -> None:
    assert TABLE.xi(A, others) is None


@pytest.mark.parametrize(
    ("together", "fits"),
    [((A, B), True), ((A, A), False), ((A,), True), ((C,), False), ((B, C), False), ((A, BIG), None), ((B, B, B), None),
     ((A, B, A), False)],
)  # fmt: skip
def test_what_fits(together: tuple[JobKind, ...], fits: bool | None) -> None:
    assert TABLE.fits(together) is fits


def test_another_form_is_refused_by_its_place() -> None:
    with pytest.raises(PolicyError, match=r"GPU 'v100', \('B', 1\), null: must be steps per second"):
        parse_speed_table({"v100": {"('B', 1)": {"null": "fast"}}})

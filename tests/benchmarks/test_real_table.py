"""Predictions on Gavel's measured table, where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.predictors.judging import covered, error_of_slowdown, error_of_xi
from benchmarks.predictors.methods import METHODS
from slurm_soda.learning.held_out_errors import hold_out_pairs, hold_out_pairs_exactly
from slurm_soda.learning.memory_fit import collect_fits, hold_out_excess, hold_out_fits
from slurm_soda.policies.sharing.prediction.memory_fit import judge_fit
from slurm_soda.policies.sharing.prediction.predicted_interference import collect_pairs
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable, parse_speed_table

PAIRS = Path(__file__).parents[3] / "shared/data/gavel/throughputs.json"
pytestmark = pytest.mark.skipif(not PAIRS.exists(), reason=f"no measured pairs at {PAIRS}")


@pytest.fixture(scope="module")
def table() -> SpeedTable:
    return parse_speed_table(json.loads(PAIRS.read_text(encoding="utf-8")))


@pytest.mark.thorough
@pytest.mark.parametrize("gpu_type", ["v100", "k80"])
def test_pairs_left_out_are_off_by_a_tenth_at_most_and_by_as_much_as_is_said(table: SpeedTable, gpu_type: str) -> None:
    pairs = collect_pairs(table, gpu_type)
    judged = hold_out_pairs_exactly(pairs, 2)
    assert error_of_xi(judged) < 0.10
    assert error_of_slowdown(judged) < 0.5 * error_of_slowdown(hold_out_pairs(pairs, METHODS["mean"]))
    assert 0.45 < covered(judged, 1) < 0.85
    assert covered(judged, 2) > 0.8


def test_most_pairs_that_fit_are_told_from_those_that_do_not(table: SpeedTable) -> None:
    meetings = collect_fits(table, "k80")
    assert ((hold_out_excess(meetings) <= 0) != meetings.fits).mean() < 0.06


def test_other_batches_tell_more_pairs_that_do_not_fit_and_no_more_wrong_ones(table: SpeedTable) -> None:
    meetings = collect_fits(table, "v100")
    by_sizes = [judge_fit(excess) for excess in hold_out_excess(meetings).tolist()]
    right, wrong = (
        [sum(said is False and fits is right for said, fits in zip(told, meetings.fits.tolist(), strict=True))
         for told in (hold_out_fits(meetings), by_sizes)]
        for right in (False, True)
    )  # fmt: skip
    assert right[0] > right[1]
    assert wrong[0] <= wrong[1]

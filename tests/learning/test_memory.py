"""Which pairs fit, on tables in which sizes are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.learning.interference import fit_held_out
from slurm_soda.learning.memory_fit import collect_fits, fit_memory_sizes, hold_out_excess, hold_out_fits
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.memory_fit import judge_fit
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable
from tests.learning.tables import table

TABLE = table()
MEETINGS = collect_fits(TABLE, "fast")


def test_pairs_of_both_sorts_are_there_and_most_are_told_without_themselves() -> None:
    apart = int((~MEETINGS.fits).sum())
    assert 3 < apart < len(MEETINGS) / 2
    wrong = int(((hold_out_excess(MEETINGS) <= 0) != MEETINGS.fits).sum())
    assert wrong < apart / 2


def test_batches_between_lie_between_and_strangers_are_unknown() -> None:
    sizes = fit_memory_sizes(MEETINGS)
    found = [sizes.size(JobKind("Wide", batch, "fast")) for batch in (32, 48, 64, 999)]
    small, between, large, beyond = (-1.0 if one is None else one for one in found)
    assert min(small, large) < between < max(small, large)
    assert beyond == large
    stranger = JobKind("Nobody", 8, "fast")
    assert sizes.size(stranger) is None
    assert sizes.fits((stranger, stranger)) is None
    assert sizes.fits((JobKind("Wide", 16, "slow"), stranger)) is None


def test_where_all_fit_everything_does() -> None:
    fitting = {key: both for key, both in TABLE.shared.items() if all(both)}
    sizes = fit_memory_sizes(collect_fits(SpeedTable(TABLE.alone, fitting), "fast"))
    assert sizes.fits((JobKind("Wide", 64, "fast"), JobKind("Wide", 64, "fast"))) is True


def test_other_batches_leave_the_border_open_and_tell_no_worse() -> None:
    by_sizes = [judge_fit(excess) for excess in hold_out_excess(MEETINGS).tolist()]
    told = hold_out_fits(MEETINGS)
    right, right_by_sizes = (
        sum(said is fits for said, fits in zip(each, MEETINGS.fits.tolist(), strict=True)) for each in (told, by_sizes)
    )
    assert right >= right_by_sizes
    assert None in told  # at the borders


def test_predictions_for_a_policy_tell_what_fits_in_either_order_and_of_three() -> None:
    held_out = fit_held_out(TABLE, "fast")
    truth, told = [], []
    for (one, other), both in TABLE.shared.items():
        if one.gpu_type == "fast":
            truth.append(all(both))
            told.append(held_out.fits((one, other)) is not False)
            assert held_out.fits((other, replace(one, gpus=2))) == held_out.fits((one, other))
    assert np.mean([one == other for one, other in zip(truth, told, strict=True)]) > 0.9
    large = next(key for key, both in TABLE.shared.items() if key[0].gpu_type == "fast" and held_out.fits(key) is False)
    assert held_out.fits((*large, large[0])) is False
    small = JobKind("Wide", 16, "fast")
    assert held_out.fits((small, small, small)) is None
    assert held_out.fits((small,)) is True

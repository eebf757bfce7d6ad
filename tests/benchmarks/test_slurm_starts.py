"""What it costs that Slurm starts jobs, on a small workload."""

from __future__ import annotations

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks.evaluate.cells import balanced_cells
from benchmarks.slurm_starts import STARTERS, average_jct_s

CELL = next(cell for cell in balanced_cells() if cell.family == "day-night" and cell.can_checkpoint == 1)


def test_slurm_starts_other_jobs_than_the_policy_and_is_slower_without_it() -> None:
    policy_s, slurm_s, stock_s = (average_jct_s(CELL, 1, "soda", 120, starter=who) for who in STARTERS)
    assert slurm_s != policy_s
    assert max(policy_s, slurm_s) < stock_s


def test_of_stock_slurm_it_makes_no_difference_which_policy_is_asked_for() -> None:
    first, then = (average_jct_s(CELL, 2, policy, 40, starter=STARTERS[2]) for policy in ("soda", "fifo"))
    assert first == then

"""No schedule is below the lower bound, and some come close."""

from __future__ import annotations

import numpy as np
import pytest

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks.evaluate.cells import Cell, balanced_cells
from benchmarks.lower_bound import bound_average_jct_s, run_bounded
from slurm_soda.simulator.traces.parsing.workload_assembly import assemble_workload
from slurm_soda.simulator.workload import Workload

CELLS = [cell for cell in balanced_cells() if cell.can_checkpoint == 1]


def jobs_of(submit_s: list[float], run_s: list[float], gpus: list[int], user: list[str] | None = None) -> Workload:
    return assemble_workload(
        "few", submit_s=np.array(submit_s), run_s=np.array(run_s), gpus=np.array(gpus), user=user or ["u"] * len(gpus)
    )[0]


def test_jobs_that_do_not_meet_take_their_run_times() -> None:
    jobs = jobs_of([0.0, 1000.0, 2000.0], [100.0, 300.0, 50.0], [1, 4, 0])
    assert bound_average_jct_s(jobs, 4, 4) == pytest.approx(150.0)


def test_equal_jobs_on_one_gpu_wait_for_each_other() -> None:
    jobs = jobs_of([0.0] * 10, [100.0] * 10, [1] * 10)
    bound_s = bound_average_jct_s(jobs, 1, 1, slots=1000)
    assert bound_s <= 550.0, "they end after 100, 200, ... 1000 s"
    assert bound_s == pytest.approx(550.0, rel=0.01)


def test_what_one_user_may_hold_counts() -> None:
    users = ["one"] * 8
    jobs = jobs_of([0.0] * 8, [100.0] * 8, [1] * 8, users)
    assert bound_average_jct_s(jobs, 8, 8, slots=1000) == pytest.approx(100.0, rel=0.01)
    assert bound_average_jct_s(jobs, 8, 2, slots=1000) == pytest.approx(250.0, rel=0.01)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.family)
def test_no_policy_is_below_it(cell: Cell) -> None:
    found = run_bounded(cell, 3, "soda", 80, slots=100)
    assert 0.0 < found.bound_s <= min(found.policy_s, found.stock_s)

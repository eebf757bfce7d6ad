"""Which knowledge a policy lacks, on small workloads."""

from __future__ import annotations

import numpy as np
import pytest

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks.evaluate.cells import balanced_cells
from benchmarks.regret import KNOWN, OTHER_RUNS, average_jct_s, make_scenario, regrets

CELL = next(cell for cell in balanced_cells() if cell.family == "lab" and cell.can_checkpoint == 1)


def test_what_is_known_is_told_and_nothing_else_differs() -> None:
    found = {known: make_scenario(CELL, 1, "soda", 20, None, known=known) for known in KNOWN}
    assert {known: one.predicted for known, one in found.items()} == {
        "nothing": True, "scripts": True, "progress": True, "pairs": True, "run times": False, "both": False,
    }  # fmt: skip
    told = {known: one.sharing.knowledge for known, one in found.items() if one.sharing}
    assert told == {
        "nothing": "prior", "scripts": "prior", "progress": "prior", "pairs": "truth", "run times": "prior", "both": "truth",
    }  # fmt: skip
    assert [known for known, one in found.items() if np.isfinite(one.tells_after_s)] == ["progress"]
    for one in found.values():
        np.testing.assert_array_equal(one.workload.run_s, found["both"].workload.run_s)


def test_regret_is_over_the_run_that_knows_both() -> None:
    jct_s = {(CELL, 1, known): average_jct_s(CELL, 1, "soda", 20, None, known=known) for known in KNOWN}
    found = regrets(jct_s)
    assert set(found) == {"lab", "all"}
    assert found["all"] == found["lab"]
    for known, (ratio,) in zip(KNOWN, found["all"], strict=False):
        assert ratio == pytest.approx(jct_s[CELL, 1, known] / jct_s[CELL, 1, "both"])


def test_a_past_is_of_the_same_users_and_ends_before_the_jobs_that_are_run() -> None:
    found = make_scenario(CELL, 1, "soda", 20, None, known="nothing", past=4)
    assert found.past is not None
    assert (len(found.workload), len(found.past)) == (20, 80)
    assert found.workload.submit_s[0] == 0.0
    assert found.past.users == found.workload.users
    whole = make_scenario(CELL, 1, "soda", 100, None, known="nothing").workload
    np.testing.assert_array_equal(np.concatenate([found.past.run_s, found.workload.run_s]), whole.run_s)
    assert make_scenario(CELL, 1, "soda", 20, None, known="both", past=4).past is None


def test_scripts_that_are_known_were_run_before_by_the_same_users_for_about_as_long() -> None:
    found = make_scenario(CELL, 1, "soda", 200, None, known="scripts", past=2)
    jobs, past = found.workload, found.past
    assert past is not None
    assert len(past) == OTHER_RUNS * len(jobs)
    np.testing.assert_array_equal(past.user[: len(jobs)], jobs.user)
    assert (past.run_s <= past.time_limit_s).all()
    logs = np.log(past.run_s).reshape(OTHER_RUNS, len(jobs))
    assert not (logs == np.log(jobs.run_s)).all(axis=1).any()
    assert np.corrcoef(logs.mean(axis=0), np.log(jobs.run_s))[0, 1] > 0.7

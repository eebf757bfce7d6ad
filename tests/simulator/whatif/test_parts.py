"""Workloads that would have left the same accounting, what is tried, and who gets worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.simulator.whatif.candidate_runs import (
    REQUEUE_S,
    make_variants,
    shift_within_the_second,
    variant_count,
)
from slurm_soda.simulator.whatif.candidates import (
    RESTART_S,
    likely_min_run_s,
    likely_restart_s,
    round_to_two_digits,
    threshold_choices,
)
from slurm_soda.simulator.whatif.worse_off_jobs import compare_jobs
from slurm_soda.simulator.workload import Workload
from slurm_soda.slurm_ext.write.job_changes import MIN_RESTART_GAP_S

times = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=20)


def workload(jobs: list[tuple[int, int]], **columns: object) -> Workload:
    return Workload.build("some", [{"submit_s": submit, "run_s": run, **columns} for submit, run in jobs])


@given(jobs=times, seed=st.integers(0, 100))
def test_a_member_leaves_the_same_accounting(jobs: list[tuple[int, int]], seed: int) -> None:
    whole = workload(jobs)
    member = shift_within_the_second(whole, seed)
    assert member.label == whole.label
    assert (np.diff(member.submit_s) >= 0).all()
    assert (np.floor(member.submit_s) == whole.submit_s).all()
    assert (np.abs(member.run_s - whole.run_s) <= 1).all()
    assert (member.run_s > 0).all()
    again = shift_within_the_second(whole, seed)
    assert (again.submit_s == member.submit_s).all()
    assert (again.run_s == member.run_s).all()


def test_few_jobs_are_simulated_often_and_many_once() -> None:
    assert [variant_count(jobs) for jobs in (1, 30, 250, 1000, 100_000)] == [20, 20, 4, 1, 1]
    large = workload([(at, 10) for at in range(1500)])
    assert make_variants(large) == (large,)
    assert len(make_variants(workload([(0, 1), (1, 1)]))) == 20


@pytest.mark.parametrize(
    ("run_s", "gpus", "expected_s"),
    [(100.0, 1, 10.0), (7200.0, 1, RESTART_S), (7200.0, 0, RESTART_S)],
)
def test_what_a_restart_may_cost(run_s: float, gpus: int, expected_s: float) -> None:
    assert likely_restart_s(Workload.build("w", [{"submit_s": 0, "run_s": run_s, "gpus": gpus}])) == expected_s


def test_jobs_are_left_alone_for_as_long_as_sodad_does_or_less_where_restarts_are_cheap() -> None:
    assert [likely_min_run_s(restart_s) for restart_s in (62.0, 15.0, 0.83, 0.0)] == [60.0, 60.0, 3.3, 0.0]


def test_preempted_jobs_come_back_no_sooner_than_sodad_lets_them() -> None:
    assert REQUEUE_S == MIN_RESTART_GAP_S


def test_thresholds_are_quantiles_in_two_digits() -> None:
    work = Workload.build("w", [{"submit_s": 0, "run_s": float(run), "gpus": 2} for run in range(1, 101)])
    found = [choice.parameters for choice in threshold_choices(work, {"min_run_s": 5})]
    assert [entry["thresholds_gpu_s"] for entry in found] == [[140.0], [160.0], [180.0], [100.0, 180.0]]
    assert all(entry["min_run_s"] == 5 for entry in found)
    assert threshold_choices(work, {"thresholds_gpu_s": [1]}) == ()
    assert threshold_choices(Workload.build("cpu", [{"submit_s": 0, "run_s": 5.0, "gpus": 0}]), {}) == ()


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, 0.0), (123456.0, 120000.0), (0.01234, 0.012), (9.96, 10.0), (float("nan"), 0.0)]
)
def test_two_digits(value: float, expected: float) -> None:
    assert round_to_two_digits(value) == expected


def test_who_gets_worse() -> None:
    work = Workload.build("w", [
        {"submit_s": 0, "run_s": 5.0, "gpus": 1, "user": "ann"},
        {"submit_s": 1, "run_s": 30.0, "gpus": 4, "user": "bob"},
        {"submit_s": 2, "run_s": 7000.0, "gpus": 16, "user": "bob"},
        {"submit_s": 3, "run_s": 7000.0, "gpus": 0, "user": "cyd"},
    ])  # fmt: skip
    found = compare_jobs(work, np.array([10.0, 40.0, 8000.0, np.nan]), np.array([5.0, 43.9, 9000.0, 1.0]))
    assert (found.everybody.jobs, found.everybody.worse) == (3, 1)  # a tenth longer is not worse yet
    assert found.worse_extra_s == 1000.0
    groups = {group.name: group for group in found.groups}
    assert [group.name for group in found.groups if group.kind == "user"] == ["bob", "ann"]  # cyd's job never ended
    assert groups["bob"].change_ratio == pytest.approx((43.9 + 9000) / 8040 - 1)
    assert (groups["bob"].jobs, groups["bob"].worse) == (2, 1)
    assert {name for name in groups if name not in ("ann", "bob")} == {
        "1 GPU", "2 to 4 GPUs", "over 8 GPUs", "runs up to 10.0 s", "runs 10.0 s to 60.0 s", "runs 60.0 min to 10.0 h",
    }  # fmt: skip


def test_nobody_is_worse_where_nothing_changes() -> None:
    work = workload([(0, 1), (5, 10)])
    found = compare_jobs(work, np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert (found.everybody.worse, found.worse_extra_s) == (0, 0.0)
    assert all(group.change_ratio == 0 for group in found.groups)

"""Figures against examples worked out by hand, and against the demo's."""

from __future__ import annotations

import math

import pytest

from slurm_soda.demo.accounting import MixJobRecord, MixJobRun
from slurm_soda.demo.job_mix.mix_figures import compute_figures
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.summary import summarise

from .outcomes import WORKED, outcome

PROMISED = {
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "preemptions", "gpu_util_ratio", "jobs",
    "cpu_s",
}  # fmt: skip


def test_worked_example() -> None:
    found = summarise(outcome(WORKED))
    assert found.jobs == 3
    assert found.unfinished == 0
    assert found.avg_jct_s == pytest.approx(70 / 3)
    assert found.p50_jct_s == 20
    assert found.p95_jct_s == pytest.approx(38)  # linear between 20 and 40, at 0.9
    assert found.p99_jct_s == pytest.approx(39.6)
    assert found.avg_queue_s == pytest.approx(10)
    assert found.makespan_s == 50
    assert found.gpu_util_ratio == pytest.approx(0.5)
    assert found.preemptions == 1
    assert found.decisions == 7
    assert found.jobs_per_cpu_s == pytest.approx(6)
    assert found.avg_gpu_jct_s == found.avg_jct_s
    assert math.isnan(found.avg_cpu_jct_s)
    assert math.isnan(found.cpu_util_ratio)


def test_the_document_has_the_promised_keys() -> None:
    assert set(summarise(outcome(WORKED)).document()) >= PROMISED


def test_the_demo_counts_the_same_way() -> None:
    found = summarise(outcome(WORKED))
    truths = [
        MixJobRecord(at, "bob", "job", "COMPLETED", job["gpus"], job["submit_s"], job["runs"][-1][1],
                 tuple(MixJobRun(start, end, "COMPLETED", "n1") for start, end in job["runs"]))
        for at, job in enumerate(WORKED)
    ]  # fmt: skip
    demo = compute_figures(truths, gpus=2)
    for key in ("jobs", "avg_jct_s", "p50_jct_s", "p95_jct_s", "avg_queue_s", "makespan_s", "preemptions"):
        assert getattr(found, key) == pytest.approx(getattr(demo, key)), key
    assert found.gpu_util_ratio == pytest.approx(demo.gpu_allocated_ratio)


def test_jobs_that_never_ended_are_counted_and_left_out_of_means() -> None:
    jobs = [
        {"submit_s": 0, "runs": [(0, 10)]},
        {"submit_s": 0, "gpus": 9, "runs": []},
        {"submit_s": 5, "runs": [(5, 8)], "ended": False, "failures": 1},
    ]
    found = summarise(outcome(jobs))
    assert (found.jobs, found.unfinished, found.failures) == (3, 2, 1)
    assert found.avg_jct_s == 10
    assert found.makespan_s == 10
    assert found.gpu_util_ratio == pytest.approx(13 / 20)


def test_gpu_and_cpu_jobs_apart() -> None:
    jobs = [
        {"submit_s": 0, "gpus": 1, "cpus": 2, "runs": [(0, 10)]},
        {"submit_s": 0, "gpus": 0, "cpus": 6, "runs": [(0, 5)]},
    ]
    found = summarise(outcome(jobs, cluster="1x2/8c"))
    assert (found.avg_gpu_jct_s, found.avg_cpu_jct_s, found.avg_jct_s) == (10, 5, 7.5)
    assert found.cpu_util_ratio == pytest.approx((2 * 10 + 6 * 5) / 80)


def test_work_after_the_last_end_is_not_within_the_makespan() -> None:
    jobs = [{"submit_s": 0, "runs": [(0, 10)]}, {"submit_s": 0, "runs": [(5, 100)], "ended": False}]
    assert summarise(outcome(jobs)).gpu_util_ratio == pytest.approx((10 + 5) / 20)


@pytest.mark.parametrize(
    "nothing",
    [outcome([]), outcome([{"submit_s": 0, "gpus": 9, "runs": []}]), outcome([], cluster="1x0")],
    ids=["no jobs", "too large", "no GPUs"],
)
def test_nothing_is_nan_not_a_crash(nothing: SimulationOutcome) -> None:
    found = summarise(nothing)
    assert math.isnan(found.avg_jct_s)
    assert math.isnan(found.p99_jct_s)
    assert math.isnan(found.makespan_s)
    assert math.isnan(found.gpu_util_ratio)


def test_no_wait_is_below_zero() -> None:
    third = 1 / 3
    jobs = [{"submit_s": 0, "runs": [(0, third), (third, 2 * third), (2 * third, 0.7)]}]
    assert summarise(outcome(jobs)).avg_queue_s >= 0

"""Activity and promptness, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.simulator.node.node_measurements import NodeMeasurements, NodeUsageRecorder
from slurm_soda.simulator.report.per_job import per_job_csv
from slurm_soda.simulator.report.soda_figures import make_soda_curves, measure_activity, measure_start_delays
from slurm_soda.simulator.report.summary import queue_s, summarise
from tests.simulator.report.outcomes import outcome

# Submissions from 0 to 100 s on 2 GPUs and 10 cores.
JOBS = (
    {"submit_s": 0.0, "gpus": 1, "cpus": 2, "runs": [(0.0, 50.0)]},
    {"submit_s": 0.0, "gpus": 0, "cpus": 1, "runs": [(20.0, 30.0)]},
    {"submit_s": 10.0, "gpus": 1, "cpus": 2, "runs": [(80.0, 180.0)]},
    {"submit_s": 100.0, "gpus": 0, "cpus": 4, "runs": [(100.0, 110.0)]},
)


def on_nodes() -> NodeMeasurements:
    recorder = NodeUsageRecorder()
    recorder.add(0, 0.0, 10.0, (1, 2), 0.0)
    recorder.add(0, 10.0, 50.0, (1, 4), 0.75)
    recorder.add(1, 20.0, 30.0, (0, 1), 0.0)
    recorder.add(2, 80.0, 180.0, (1, 2), math.nan)
    recorder.add(3, 100.0, 110.0, (0, 4), 0.0)
    recorder.add(3, 110.0, 110.0, (0, 4), 0.0)
    return NodeMeasurements(
        recorder.stretches(), np.array([4, 1, 2, -1]), np.array([3, -1, -1, -1]), np.array([True, False, True, False])
    )


def test_rates_are_over_the_time_of_submissions() -> None:
    found = measure_activity(outcome(JOBS, "1x2/10c"), 10)
    assert found.gpu_active_ratio == pytest.approx((50 + 20) / 200)
    assert found.cpu_active_ratio == pytest.approx((2 * 50 + 10 + 2 * 20) / 1000)
    assert math.isnan(found.gpu_busy_ratio)
    assert math.isnan(found.gpu_busy_all_ratio)


def test_utilisation_is_of_active_gpus_as_far_as_it_is_known() -> None:
    run = replace(outcome(JOBS, "1x2/10c"), node_measurements=on_nodes())
    found = measure_activity(run, 10)
    assert found.gpu_active_ratio == pytest.approx((50 + 20) / 200)
    assert found.gpu_busy_ratio == pytest.approx(0.75 * 40 / 50)
    assert found.gpu_busy_all_ratio == pytest.approx(0.75 * 40 / 200)
    assert found.cpu_active_ratio == pytest.approx((2 * 10 + 4 * 40 + 10 + 2 * 20) / 1000)
    assert summarise(run).gpu_busy_ratio == found.gpu_busy_ratio
    curves = make_soda_curves(run, queue_s(run))
    assert curves is not None
    assert curves.gpus_active.mean.mean() == pytest.approx(0.7)
    assert curves.gpus_busy.mean.mean() == pytest.approx(0.3)
    assert curves.more_cores.tolist() == [2.0, 0.0]
    assert len(curves.user_p99_s) == 1
    lines = per_job_csv(run).splitlines()
    assert lines[0].endswith(",failures,cpus_given,core_steps")
    assert [line.rsplit(",", 2)[1:] for line in lines[1:]] == [["4", "3"], ["1", ""], ["2", ""], ["", ""]]


def test_shares_by_the_wait_until_the_first_start() -> None:
    found = measure_start_delays(outcome(JOBS, "1x2/10c"))
    assert (found.gpu_at_once_ratio, found.gpu_over_minute_ratio, found.gpu_over_hour_ratio) == (0.5, 0.5, 0.0)
    assert (found.cpu_within_10s_ratio, found.cpu_within_minute_ratio) == (0.5, 1.0)
    never = measure_start_delays(outcome([{"submit_s": 0.0, "gpus": 1, "runs": []}]))
    assert (never.gpu_at_once_ratio, never.gpu_over_hour_ratio) == (0.0, 1.0)
    assert math.isnan(never.cpu_within_10s_ratio)
    assert make_soda_curves(outcome(JOBS), np.zeros(4)) is None

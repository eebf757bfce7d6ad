"""What a site shows of itself: figures, the time between jobs, and the latest part of a long dump."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.sacct.dump import SacctRun
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.whatif.observed_site import (
    ObservedSite,
    latest_jobs,
    make_observed_site,
    measure_start_delay_s,
    summarise_observed,
)
from slurm_soda.simulator.workload import Workload


def ran(start_s: float, end_s: float, *nodes: str, ready_s: float = 0.0) -> SacctRun:
    return SacctRun(0, ready_s, start_s, end_s, "COMPLETED", nodes or ("n1",), 1, "", 1, 0, "main")


@pytest.mark.parametrize(
    ("runs", "lag_s"),
    [
        ([], 0.0),
        ([ran(3, 10, ready_s=1)], 2.0),  # an empty cluster took 2 s
        ([ran(0, 10), ran(11, 20), ran(22, 30)], 1.0),  # 0, 1 and 2 s
        ([ran(0, 10), ran(0, 12, "n2"), ran(13, 20, "n1", "n2")], 1 / 3),  # the last of its nodes to become free counts
        ([ran(0, 10), ran(10, 20), ran(500, 600)], 0.0),  # whoever waited so long waited for something else
        ([ran(0, 10), ran(15, 20, ready_s=14)], 0.5),  # it came after the node was free
        ([ran(0, float("inf")), ran(5, 9, "n2", ready_s=5)], 0.0),
        ([ran(100, 110, ready_s=0), ran(300, 310, ready_s=150)], 0.0),  # never within a minute: nothing can be said
    ],
)
def test_time_from_free_nodes_to_a_start(runs: list[SacctRun], lag_s: float) -> None:
    assert measure_start_delay_s(runs) == pytest.approx(lag_s)


def site(submit_s: list[float], start_s: list[float], end_s: list[float]) -> ObservedSite:
    rows = [
        {"submit_s": submit, "run_s": end - start, "gpus": 2}
        for submit, start, end in zip(submit_s, start_s, end_s, strict=True)
    ]
    work = Workload.build("site", rows)
    return ObservedSite(work, parse_cluster("1x4"), np.array(start_s, dtype=float), np.array(end_s, dtype=float), 0.0)


def test_figures_are_those_of_the_site() -> None:
    seen = summarise_observed(site([0, 0, 10], [0, 0, 20], [20, 40, 40]))
    assert (seen.jobs, seen.avg_jct_s, seen.p50_jct_s, seen.makespan_s) == (3, 30.0, 30.0, 40.0)
    assert seen.avg_queue_s == pytest.approx(10 / 3)
    assert seen.gpu_util_ratio == pytest.approx((20 + 40 + 20) * 2 / (4 * 40))


def test_the_latest_jobs_come_with_those_that_were_there() -> None:
    whole = site([0, 1, 50, 60], [0, 1, 50, 60], [10, 55, 70, 80])
    part = latest_jobs(whole, 2)
    assert part.workload.submit_s.tolist() == [1, 50, 60]  # the second job still ran when the third came
    assert part.end_s.tolist() == [55, 70, 80]
    assert latest_jobs(whole, 4) is whole


def test_a_trace_without_observations_is_no_site() -> None:
    trace = JobTrace(site([0], [0], [1]).workload, "tiresias")
    with pytest.raises(SimulatorError, match="does not say when its jobs started"):
        make_observed_site(trace, [], parse_cluster("1x4"))
    told = replace(trace, observed_start_s=np.zeros(1), observed_end_s=np.ones(1))
    assert make_observed_site(told, [], parse_cluster("1x4")).end_s.tolist() == [1]

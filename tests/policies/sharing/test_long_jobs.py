"""How many GPUs long jobs may hold while shorter ones are there, and when GPUs get free."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.sjf.gpu_release_times import GpuReleaseTimes
from slurm_soda.policies.sharing.sjf.long_jobs import LONG_S, MAX_WAIT_S, OVERNIGHT_S, LongJobs, expect_quiet_hours
from slurm_soda.policies.sharing.sjf.shorter_jobs import DAYTIME_PATIENCE, MUCH_LONGER
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_sjf import job, on

Job = tuple[float, int, str]
"""Run time, GPUs, and whether it waits, runs, or neither."""
TIMES = st.one_of(st.floats(1.0, 1e5), st.sampled_from((math.inf, math.nan)))
JOBS = st.lists(st.tuples(TIMES, st.integers(0, 64), st.sampled_from(("waits", "runs", "neither"))), max_size=20)
STARTED = st.lists(st.tuples(st.floats(1.0, 1e5), st.integers(1, 64)), max_size=5)


def long_jobs(jobs: list[Job], limit_gpus: float = 16.0) -> LongJobs:
    run_s, gpus, does = (list(column) for column in zip(*jobs, strict=True)) if jobs else ([], [], [])
    return LongJobs(
        np.array(run_s, np.float64), np.array(gpus, np.int64), np.array([one == "waits" for one in does], np.bool_),
        np.array([one == "runs" for one in does], np.bool_), limit_gpus=limit_gpus,
    )  # fmt: skip


@given(JOBS, STARTED, st.floats(LONG_S, 1e5))
def test_what_long_jobs_hold_is_what_the_definition_says(
    jobs: list[Job], started: list[tuple[float, int]], run_s: float
) -> None:
    long = long_jobs(jobs)
    for time_s, gpus in sorted(started):
        long.start(time_s, gpus)
    ran = [(time_s, gpus) for time_s, gpus, does in jobs if does == "runs"]
    assert long.held_gpus(run_s) == sum(gpus for time_s, gpus in [*ran, *started] if time_s >= run_s / MUCH_LONGER)


@pytest.mark.parametrize(
    ("jobs", "run_s", "gpus", "waited_s", "waits"),
    [
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 1e5, 8, 0.0, True),
        ([(60.0, 1, "waits"), (9e4, 12, "runs")], 1e5, 8, 0.0, True),
        ([(math.nan, 1, "runs"), (math.nan, 1, "waits"), (60.0, 1, "runs"), (9e4, 12, "runs")], 1e5, 8, 0.0, True),
        ([(math.nan, 1, "runs"), (9e4, 12, "runs")], 1e5, 8, 0.0, False),  # nobody knows that it is shorter
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 1e5, 4, 0.0, False),  # within the limit
        ([(9e4, 12, "runs")], 1e5, 8, 0.0, False),  # nobody is much shorter
        ([(60.0, 0, "runs"), (60.0, 1, "neither"), (9e4, 12, "runs")], 1e5, 8, 0.0, False),  # nobody who wants GPUs
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 1e5, 8, MAX_WAIT_S - 1.0, True),
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 1e5, 8, MAX_WAIT_S, False),
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 8000.0, 8, DAYTIME_PATIENCE * 8000.0 - 1.0, True),
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 8000.0, 8, DAYTIME_PATIENCE * 8000.0, False),
        ([(1999.0, 1, "runs"), (9e4, 12, "runs")], 8000.0, 8, 0.0, True),
        ([(2000.0, 1, "runs"), (9e4, 12, "runs")], 8000.0, 8, 0.0, False),  # a quarter is not much shorter
        ([(60.0, 1, "runs"), (LONG_S, 12, "runs")], LONG_S, 8, 0.0, False),  # is not long
        ([(60.0, 1, "runs")], 1e5, 17, 0.0, True),  # larger than all that long jobs may hold: when it is quiet
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], math.nan, 8, 0.0, False),
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], math.inf, 8, 0.0, False),  # nobody knows: it would wait for ever
        ([(60.0, 1, "runs"), (9e4, 12, "runs")], 1e5, 8, math.nan, False),
        ([(60.0, 1, "runs"), (math.inf, 12, "runs")], 1e5, 8, 0.0, True),
        ([], 1e5, 64, 0.0, False),
    ],
)
def test_who_waits_until_fewer_long_jobs_run(
    jobs: list[Job], run_s: float, gpus: int, waited_s: float, waits: bool
) -> None:
    assert long_jobs(jobs).should_wait(run_s, gpus, waited_s) is waits


@pytest.mark.parametrize(
    ("waited_s", "come"),
    [
        ([], True),
        ([0.0, OVERNIGHT_S], True),
        ([0.0, OVERNIGHT_S + 1.0], False),
        ([math.nan, 60.0], True),
        ([math.inf], False),
        ([0.0] * 3, True),
        ([0.0] * 4, False),  # more jobs than the three GPUs
    ],
)
def test_quieter_hours_come_where_the_queue_is_short_and_nobody_has_waited_for_a_night(
    waited_s: list[float], come: bool
) -> None:
    assert expect_quiet_hours(np.array(waited_s, np.float64), 3) is come


def test_gpus_get_free_when_the_last_job_on_them_ends() -> None:
    """Jobs 2 and 3 share GPU 1 at 1.2, so it is free after 240 s; GPU 3 of the other node after 50 s."""
    jobs = [on(1, 100.0, 0), on(2, 200.0, 1), on(3, 150.0, 1), on(4, 50.0, 3)]
    snapshot = scene(jobs, NodeTable.uniform(2, 2), Table(else_xi=1.2))
    gpu_occupancy = GpuOccupancy(snapshot, PlacementPass(snapshot).free_capacity)
    releases = GpuReleaseTimes(gpu_occupancy, InterferenceView(snapshot, gpu_occupancy))
    first, both = np.array([True, False]), np.array([True, True])
    assert [releases.wait_s(first, gpus) for gpus in range(-1, 4)] == pytest.approx([0.0, 0.0, 100.0, 240.0, math.inf])
    assert [releases.wait_s(both, gpus) for gpus in range(1, 4)] == pytest.approx([50.0, 100.0, 240.0])


def test_nothing_is_free_soon_where_nobody_runs() -> None:
    snapshot = scene([job(1, 100.0)], NodeTable.uniform(1, 1), Table(else_xi=1.2))
    gpu_occupancy = GpuOccupancy(snapshot, PlacementPass(snapshot).free_capacity)
    assert (
        GpuReleaseTimes(gpu_occupancy, InterferenceView(snapshot, gpu_occupancy)).wait_s(np.array([True]), 1)
        == math.inf
    )


@pytest.mark.parametrize("left_s", [(math.nan, 100.0), (100.0, math.nan)])
def test_nobody_knows_when_a_gpu_gets_free_if_a_job_runs_there_for_an_unknown_time(left_s: tuple[float, float]) -> None:
    snapshot = scene([on(1, left_s[0], 0), on(2, left_s[1], 0)], NodeTable.uniform(1, 1), Table(else_xi=1.2))
    gpu_occupancy = GpuOccupancy(snapshot, PlacementPass(snapshot).free_capacity)
    assert (
        GpuReleaseTimes(gpu_occupancy, InterferenceView(snapshot, gpu_occupancy)).wait_s(np.array([True]), 1)
        == math.inf
    )

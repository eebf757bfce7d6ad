"""Gantt charts: bars lie on the GPUs that were held, and never upon each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.report.charts.gantt import (
    MOST_JOBS,
    GanttChart,
    gpu_count_class,
    is_drawable,
    make_gantt_without_sharing,
)
from slurm_soda.simulator.workload import Workload

from .outcomes import WORKED, outcome


def found(chart: GanttChart) -> list[tuple[str, int, int, float, float, bool]]:
    return [(bar.label, bar.lane, bar.lanes, bar.start_s, bar.end_s, bar.stopped) for bar in chart.bars]


def test_a_pool_gives_lanes_in_turn() -> None:
    chart = make_gantt_without_sharing(outcome(WORKED))
    assert chart.names == ("0", "1")
    assert chart.first_of_node == ()
    assert chart.span_s == 50
    assert found(chart) == [
        ("1", 0, 1, 0, 10, False),
        ("2", 0, 2, 20, 30, False),
        ("3", 0, 1, 30, 40, True),
        ("3", 0, 1, 40, 50, False),
    ]


def test_nodes_keep_their_own_lanes_and_gangs_are_split_over_them() -> None:
    jobs = [
        {"submit_s": 0, "gpus": 1, "runs": [(0, 9, [(1, 1)])]},
        {"submit_s": 0, "gpus": 3, "runs": [(0, 5, [(0, 2), (1, 1)])]},
        {"submit_s": 0, "gpus": 0, "runs": [(0, 5, [(0, 0)])]},
    ]
    chart = make_gantt_without_sharing(outcome(jobs, cluster="2x2"))
    assert chart.names == ("n1:0", "n1:1", "n2:0", "n2:1")
    assert chart.first_of_node == (0, 2)
    assert found(chart) == [("1", 2, 1, 0, 9, False), ("2", 0, 2, 0, 5, False), ("2", 3, 1, 0, 5, False)]


def test_neighbours_are_preferred_and_gaps_taken_where_there_are_none() -> None:
    jobs = [
        {"label": "a", "submit_s": 0, "runs": [(0, 10)]},
        {"label": "b", "submit_s": 0, "runs": [(0, 90)]},
        {"label": "c", "submit_s": 0, "gpus": 2, "runs": [(0, 10)]},
        {"label": "d", "submit_s": 0, "gpus": 2, "runs": [(10, 20)]},
        {"label": "e", "submit_s": 0, "gpus": 3, "runs": [(20, 30)]},
    ]
    bars = [bar for bar in found(make_gantt_without_sharing(outcome(jobs, cluster="1x4"))) if bar[0] in "de"]
    assert bars == [("d", 2, 2, 10, 20, False), ("e", 0, 1, 20, 30, False), ("e", 2, 2, 20, 30, False)]


def test_jobs_that_share_a_gpu_lie_upon_each_other() -> None:
    jobs = [{"submit_s": 0, "runs": [(0, 9, [(0, 1)])]}, {"submit_s": 0, "runs": [(1, 5, [(0, 1)])]}]
    assert [bar.lane for bar in make_gantt_without_sharing(outcome(jobs, cluster="1x1")).bars] == [0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 6)), min_size=1, max_size=25),
    st.sampled_from(["gpu-count", "snapshot"]),
)
def test_bars_of_a_simulation_hold_all_gpu_time_and_never_overlap(
    rows: list[tuple[int, int, int]], engine: str
) -> None:
    jobs = [{"submit_s": submit, "run_s": run, "gpus": gpus} for submit, run, gpus in rows]
    run = simulate(
        Workload.build("drawn", jobs), parse_cluster("2x3"), make_policy("srsf", {"min_run_s": 0}), engine=engine
    )
    chart = make_gantt_without_sharing(run)
    held = {lane: [(b.start_s, b.end_s) for b in chart.bars if b.lane <= lane < b.lane + b.lanes] for lane in range(6)}
    for spans in held.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    time_s = sum(end - start for spans in held.values() for start, end in spans)
    assert time_s == pytest.approx(float(((run.segments.end_s - run.segments.start_s) * run.segments.gpus).sum()))


@pytest.mark.parametrize(
    ("jobs", "cluster", "said"),
    [(1, "1x2", True), (MOST_JOBS + 1, "1x2", False), (1, "100x8", False), (0, "1x2", False)],
)
def test_only_what_can_be_read_is_drawn(jobs: int, cluster: str, said: bool) -> None:
    assert is_drawable(outcome([{"submit_s": 0, "runs": [(0, 1)]}] * jobs, cluster=cluster)) is said


@pytest.mark.parametrize(("gpus", "shown"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (640, 16)])
def test_colours_cover_every_size(gpus: int, shown: int) -> None:
    assert gpu_count_class(gpus) == shown

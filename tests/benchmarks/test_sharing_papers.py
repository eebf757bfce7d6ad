"""What stands in for the clusters of the OJPP and co-location papers: worlds, speeds, and a GPU that jobs share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.chapter6.evaluation import best_case, delta, fifo, fitted, together
from benchmarks.chapter6.gpu import SimulatedTraining, run_together
from benchmarks.ojpp.evaluation import PATTERNS, Case, evaluate, placed
from benchmarks.ojpp.measured import WAYS as SAVING
from benchmarks.ojpp.measured import saved, world_of
from benchmarks.ojpp.networks import KINDS, NETWORKS, DrawnQueue, draw
from benchmarks.ojpp.patterns import Placement
from benchmarks.ojpp.performance import speeds
from benchmarks.reproduce.ojpp import MAIN, WAYS, cases
from slurm_soda.policies.sharing.ojpp.job_demands import NEVER_TOGETHER
from slurm_soda.policies.sharing.ojpp.packing import PackingJobs, PackingRules
from tests.policies.sharing.clusters import violations


def test_worlds_are_of_their_kind_and_repeat() -> None:
    for kind in KINDS:
        world = draw(kind, 7)
        assert len(world.jobs) == 20
        assert 1 <= world.jobs.workers.min() <= world.jobs.workers.max() <= 10
        np.testing.assert_array_equal(world.jobs.compute, draw(kind, 7).jobs.compute)
    assert set(draw("C-high", 1).jobs.model) == {0, 1}
    assert set(draw("average", 1).jobs.model) == {2, 3}
    loud = [np.isin(draw("mixed", seed).jobs.model, (0, 1, 4, 5)).sum() for seed in range(5)]
    assert loud == [10] * 5


def test_slowdowns_meet_those_that_are_published_on_average() -> None:
    tables = np.mean([draw("mixed", seed).slowdown for seed in range(300)], axis=0)
    names = [one.name for one in NETWORKS]
    lenet, lstm, vgg, resnet = (names.index(name) for name in ("LeNet", "LSTM", "VGG", "ResNet"))
    assert tables[resnet, vgg] == pytest.approx(1.22, rel=0.05)
    assert tables[vgg, resnet] == pytest.approx(0.187, rel=0.05)
    assert tables[lenet, lstm] == pytest.approx(0.18, rel=0.05)


def test_a_job_is_as_fast_as_its_slowest_worker() -> None:
    columns = (np.full(2, 0.1), np.array([0.3, 0.3]), np.array([0.6, 0.3]), np.array([0.5, 0.2]))
    jobs = PackingJobs(np.array([2, 1]), *columns, model=np.array([0, 1]))
    world = DrawnQueue(jobs, np.array([[0.0, 0.25], [0.5, 0.0]]), ("a", "b"))
    found = speeds(world, Placement(((0, 1), (1,)), 2))
    # Both wait half of the time in which their peaks meet, a tenth of all.
    assert found.tolist() == pytest.approx([0.95 / 1.25, 0.95 / 1.5])
    assert speeds(world, Placement(((0, 1), (2,)), 3)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_keeps_its_bounds(way: str) -> None:
    case = Case("mixed", way, *MAIN, guarantee=0.93 if way == PATTERNS else 0.0, tries=40)
    world = draw("mixed", 3)
    if way in ("greedy", "ojpp", PATTERNS):
        assert violations(world.jobs, world.slowdown, case.rules(), placed(world, case).devices) == []
    found = evaluate(case, 3)
    assert 0 < found.devices <= found.workers
    assert 0 < found.performance <= 1
    if way == PATTERNS:
        assert found.performance >= 0.93


def test_a_table_of_20_seeds_has_each_case_once() -> None:
    listed = set(cases())
    assert len({case.kind for case in listed}) == 4
    assert {case.way for case in listed} == set(WAYS)


def job(kernels_s: float = 0.01, occupancy: float = 0.4, host_s: float = 0.0, load_s: float = 0.0) -> SimulatedTraining:
    return SimulatedTraining("t", kernels_s, occupancy, host_s, load_s, 100)


def test_alone_an_iteration_takes_kernels_and_host_or_loading() -> None:
    assert run_together([job(host_s=0.005)], mps=True) == pytest.approx([1.5])
    assert run_together([job(load_s=0.03)], mps=True) == pytest.approx([3.0], rel=0.02)
    assert job(load_s=0.03).alone_s == 0.03


def test_together_with_and_without_mps() -> None:
    assert run_together([job(), job()], mps=True) == pytest.approx([1.0, 1.0])
    assert run_together([job(), job()], mps=False) == pytest.approx([2.0, 2.0])
    assert run_together([job(occupancy=1.0)] * 3, mps=True) == pytest.approx([3.0] * 3)
    # Without MPS, too, kernels of one run while the other's host or its loading takes time.
    assert max(run_together([job(load_s=0.05), job(load_s=0.05)], mps=False)) < 6.5
    assert delta([job(), job()], mps=True) == pytest.approx(2.0)


def test_one_ends_and_the_other_goes_on_faster() -> None:
    short = SimulatedTraining("s", 0.01, 1.0, 0.0, 0.0, 50)
    assert run_together([job(occupancy=1.0), short], mps=True) == pytest.approx([1.5, 1.0])


def test_a_gpu_each_or_all_at_once() -> None:
    jobs = [replace(one, iterations=40) for one in best_case(10, 0.5)]
    alone, shared = fifo(jobs), together(jobs, mps=True, judge=fitted(jobs))
    assert alone.wait_s > 0
    assert shared.wait_s == 0
    assert shared.makespan_s < alone.makespan_s
    assert shared.jct_s > alone.jct_s


def test_full_size_trainings_from_a_pair_table(tmp_path: Path) -> None:
    one, other = "('A', 1)", "('B', 1)"
    shared = {one: {"null": 10.0, one: [9.5, 9.5], other: [9.5, 18.0]}, other: {"null": 20.0, other: [0.0, 0.0]}}
    (tmp_path / "pairs.json").write_text(json.dumps({"v100": shared}), encoding="utf-8")
    world = world_of(tmp_path / "pairs.json", "v100", 1)
    assert world.slowdown[0].tolist() == pytest.approx([10 / 9.5 - 1] * 2)
    assert world.slowdown[1, 1] == NEVER_TOGETHER  # they do not fit
    found = [saved(world, way, PackingRules(0.1, 0.2, 0.1)) for way in SAVING]
    assert all(0 < part <= 0.9 for part in found)
    assert saved(world, "greedy", PackingRules(0.1, 0.0, 0.0)) == 0

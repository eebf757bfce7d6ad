"""Parts of the node room: curves, neighbours, a search that is short of cores, what is remembered of users."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slurm_soda.policies.cpu_fit.core_search import SettleReason
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, NodeCapacity, PastFit
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.bandwidth_contention import (
    HEAVY_BANDWIDTH_MODEL,
    MEMORY_CONTENTION_RATIO,
    NETWORK_CONTENTION_RATIO,
    THROTTLED_MEMORY_RATIO,
    THROTTLED_NETWORK_RATIO,
    BandwidthContention,
)
from slurm_soda.simulator.node.core_tuning import MOST_FITS_KEPT, BestFitHistory, TunedJob
from slurm_soda.simulator.node.model_core_curves import BEST_FIT_BY_MODEL, make_built_in_curves, make_core_curve
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.runs.systems import find_system
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import job

HEAVY_JOB, WIDE, LOCAL, BLIND, SERVED, IDLE_CPU = range(6)
WORK = Workload.build(
    "w",
    [
        job(0, 60, 0, cpus=1, model=HEAVY_BANDWIDTH_MODEL), job(1, 60, 2, model="alexnet", category="cv"),
        job(2, 60, 1, model="alexnet", category="cv"), job(3, 60, 1, model="vgg16", category="cv"),
        job(4, 60, 1, model="alexnet", category="inference"), job(5, 60, 0, cpus=1),
    ],
)  # fmt: skip
ON_0, ON_BOTH = (NodeAllocation(0, 1, 1, 0),), (NodeAllocation(0, 1, 1, 0), NodeAllocation(1, 1, 1, 0))


def test_curves_reach_their_best_at_the_best_fit_and_not_before() -> None:
    for model, curve in make_built_in_curves().items():
        best_fit, best_ratio = BEST_FIT_BY_MODEL[model]
        assert curve.at(best_fit) == curve.at(28) == best_ratio
        assert all(curve.at(cores) < 0.98 * best_ratio for cores in range(1, best_fit))
        gains = [curve.at(cores + 1) - curve.at(cores) for cores in range(best_fit)]
        assert all(more >= less for more, less in pairwise(gains))
    assert make_core_curve(4, 0.8, 0.0).at(2) == pytest.approx(0.4)


@pytest.mark.parametrize(("eliminates", "wide", "local", "blind", "heavy"), [
    ("nothing", MEMORY_CONTENTION_RATIO * NETWORK_CONTENTION_RATIO, MEMORY_CONTENTION_RATIO, 1.0, 1.0),
    ("memory", NETWORK_CONTENTION_RATIO, 1.0, 1.0, THROTTLED_MEMORY_RATIO),
    ("all", 1.0, 1.0, 1.0, min(THROTTLED_MEMORY_RATIO, THROTTLED_NETWORK_RATIO)),
])  # fmt: skip
def test_who_suffers_from_a_heavy_neighbour(
    eliminates: str, wide: float, local: float, blind: float, heavy: float
) -> None:
    beside = BandwidthContention(WORK, 2, NodeRules("asked", eliminates))
    for row in (LOCAL, BLIND, SERVED, IDLE_CPU):
        assert beside.arrive(row, ON_0) == set()
    assert beside.arrive(WIDE, ON_BOTH) == set()
    assert beside.arrive(HEAVY_JOB, (NodeAllocation(0, 0, 1, 0),)) == {WIDE, LOCAL, BLIND}
    pieces = {WIDE: ON_BOTH, HEAVY_JOB: (NodeAllocation(0, 0, 1, 0),)}
    ratios = [beside.ratio(row, pieces.get(row, ON_0)) for row in range(6)]
    assert ratios == pytest.approx([heavy, wide, local, blind, 1.0, 1.0])
    assert beside.leave(WIDE, ON_BOTH) == {HEAVY_JOB}
    assert beside.leave(HEAVY_JOB, pieces[HEAVY_JOB]) == {LOCAL, BLIND}
    assert beside.ratio(LOCAL, ON_0) == 1.0


def test_a_heavy_job_alone_is_not_throttled() -> None:
    beside = BandwidthContention(WORK, 1, NodeRules("asked", "all"))
    beside.arrive(HEAVY_JOB, (NodeAllocation(0, 0, 1, 0),))
    assert beside.ratio(HEAVY_JOB, (NodeAllocation(0, 0, 1, 0),)) == 1.0


def test_a_search_never_wants_more_than_there_is_and_gives_nothing_away_before_its_end() -> None:
    curve, job, held = make_core_curve(6, 0.8), TunedJob.begin(1, 28), []
    while (reason := job.step(curve.at(job.cores), reach=4)) is None:
        assert job.cores <= job.held <= 4
        held.append(job.held)
    assert held == sorted(held)
    assert reason in SettleReason
    assert job.bounded
    assert 3 <= job.cores == job.held <= 4
    again = TunedJob.begin(job.cores, 28)
    assert again.step(curve.at(again.cores), reach=28) is None
    assert not again.bounded


def test_users_have_their_own_past_and_only_its_newest_part() -> None:
    history, request, node = BestFitHistory(), CoreRequest(2, "nlp", "bat"), NodeCapacity(28)
    assert history.start("ann", request, node) == 10
    history.add("ann", PastFit("nlp", "bat", 7, 1))
    assert history.start("ann", request, node) == 14
    assert history.start("bob", request, node) == 10
    for _ in range(MOST_FITS_KEPT):
        history.add("ann", PastFit("nlp", "bat", 2, 1))
    assert history.start("ann", request, node) == 4


def test_systems_and_rules_by_name() -> None:
    coda, soda = find_system("coda"), find_system("soda")
    assert (coda.policy, coda.rules.adaptive, coda.rules.memory_is_safe, coda.rules.network_is_safe) == (
        "coda", True, True, False,
    )  # fmt: skip
    assert soda.rules.network_is_safe
    assert not find_system("kelp-fifo").rules.adaptive
    with pytest.raises(SimulatorError, match="no system 'borg'; choose one of: kelp-fifo, kelp-drf, coda, soda"):
        find_system("borg")
    with pytest.raises(SimulatorError, match="cores = 'few' is not allowed; choose one of: asked, adaptive"):
        NodeRules("few")

"""Screen: all running jobs at once give what Algorithm 2 gives one by one."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision, decide_sharing
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.sjf.partner_screening import PartnerScreen, SharedGpuGroup
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState
from slurm_soda.sodactl.bench.synthetic_sharing import shared_cluster
from tests.sampling import thorough


def scene(
    seed: int, bound_caution: float = 0.0
) -> tuple[SharingSnapshot, GpuOccupancy, InterferenceView, PartnerScreen, list[int]]:
    snapshot = shared_cluster(160 if thorough() else 80, 6, seed)
    gpu_occupancy = GpuOccupancy(snapshot, PlacementPass(snapshot).free_capacity)
    interference_view = InterferenceView(snapshot, gpu_occupancy)
    waiting = np.flatnonzero((snapshot.jobs.state == JobState.PENDING) & (snapshot.jobs.gpus > 0)).tolist()
    return (
        snapshot,
        gpu_occupancy,
        interference_view,
        PartnerScreen(snapshot, gpu_occupancy, interference_view, 2, bound_caution),
        waiting,
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("bound_caution", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(1, 5))
def test_jobs_may_meet_where_algorithm_2_refuses_not_every_sub_batch(seed: int, bound_caution: float) -> None:
    _, _, interference_view, screen, waiting = scene(seed, bound_caution)
    answers = set()
    for row in waiting:
        may_meet = screen.may_share(row)
        for number, group in enumerate(screen.groups):
            answers.add(bool(may_meet[number]))
            assert may_meet[number] == (_least_mean_s(interference_view, row, group, bound_caution) < np.inf)
    assert answers == {True, False}


@pytest.mark.sample(1)
@pytest.mark.parametrize("bound_caution", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_mean_of_a_pair_is_the_least_that_algorithm_2_finds_when_it_starts_now(
    seed: int, bound_caution: float
) -> None:
    _, _, interference_view, screen, waiting = scene(seed, bound_caution)
    for row in waiting:
        together, after, _ = screen.mean_completions_s(row)
        for number, group in enumerate(screen.groups):
            assert together[number] == pytest.approx(_least_mean_s(interference_view, row, group, bound_caution))
            if interference_view.consent(row).shares:
                assert after[number] == pytest.approx(
                    _decide(interference_view, row, group, bound_caution).sequential.mean_s
                )


def test_devices_come_in_the_order_of_their_groups_without_those_given_away() -> None:
    snapshot, gpu_occupancy, _, screen, _ = scene(1)
    order = np.array([len(screen) - 1, 0, 2])
    nodes = np.ones(len(snapshot.nodes), dtype=np.bool_)
    wanted = [device for number in order.tolist() for device in screen.groups[number].devices]
    assert list(screen.devices(order, nodes)) == wanted
    gpu_occupancy.taken[wanted[0]] = True
    nodes[gpu_occupancy.node[wanted[-1]]] = False
    left = [device for device in wanted[1:] if gpu_occupancy.node[device] != gpu_occupancy.node[wanted[-1]]]
    assert list(screen.devices(order, nodes)) == left


def _decide(
    interference_view: InterferenceView, row: int, group: SharedGpuGroup, bound_caution: float
) -> SharingDecision:
    new, (co_runner,) = interference_view.new_job(row), group.rows
    return decide_sharing(
        new, [interference_view.partner(co_runner, group.devices)], lambda size:
        [interference_view.mutual_slowdown(row, size, co_runner, group.devices)],
        bound_caution=bound_caution,
    )  # fmt: skip


def _least_mean_s(interference_view: InterferenceView, row: int, group: SharedGpuGroup, bound_caution: float) -> float:
    trials = _decide(interference_view, row, group, bound_caution).trials
    return min((trial.together.mean_s for trial in trials if trial.together is not None), default=np.inf)

"""Screen: all running jobs at once give what Algorithm 2 gives one by one."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.policies.sharing.arithmetic.subbatch import Decision, decide
from slurm_soda.policies.sharing.company import Company
from slurm_soda.policies.sharing.sjf.screening import Group, Screen
from slurm_soda.policies.sharing.tenancy import Tenancy
from slurm_soda.policies.sharing.view import SharingSnapshot
from slurm_soda.policies.snapshot import JobState
from slurm_soda.policies.walk import Walk
from slurm_soda.sodactl.synthetic_sharing import shared_cluster


def scene(seed: int, bound_caution: float = 0.0) -> tuple[SharingSnapshot, Tenancy, Company, Screen, list[int]]:
    snapshot = shared_cluster(160, 6, seed)
    tenancy = Tenancy(snapshot, Walk(snapshot).room)
    company = Company(snapshot, tenancy)
    waiting = np.flatnonzero((snapshot.jobs.state == JobState.PENDING) & (snapshot.jobs.gpus > 0)).tolist()
    return snapshot, tenancy, company, Screen(snapshot, tenancy, company, 2, bound_caution), waiting


@pytest.mark.parametrize("bound_caution", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(1, 5))
def test_jobs_may_meet_where_algorithm_2_refuses_not_every_sub_batch(seed: int, bound_caution: float) -> None:
    _, _, company, screen, waiting = scene(seed, bound_caution)
    answers = set()
    for row in waiting:
        may_meet = screen.may_meet(row)
        for number, group in enumerate(screen.groups):
            answers.add(bool(may_meet[number]))
            assert may_meet[number] == (_least_mean_s(company, row, group, bound_caution) < np.inf)
    assert answers == {True, False}


@pytest.mark.parametrize("bound_caution", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_mean_of_a_pair_is_the_least_that_algorithm_2_finds_when_it_starts_now(
    seed: int, bound_caution: float
) -> None:
    _, _, company, screen, waiting = scene(seed, bound_caution)
    for row in waiting:
        together, after, _ = screen.means_s(row)
        for number, group in enumerate(screen.groups):
            assert together[number] == pytest.approx(_least_mean_s(company, row, group, bound_caution))
            if company.consent(row).shares:
                assert after[number] == pytest.approx(_decide(company, row, group, bound_caution).sequential.mean_s)


def test_devices_come_in_the_order_of_their_groups_without_those_given_away() -> None:
    snapshot, tenancy, _, screen, _ = scene(1)
    order = np.array([len(screen) - 1, 0, 2])
    nodes = np.ones(len(snapshot.nodes), dtype=np.bool_)
    wanted = [device for number in order.tolist() for device in screen.groups[number].devices]
    assert list(screen.devices(order, nodes)) == wanted
    tenancy.taken[wanted[0]] = True
    nodes[tenancy.node[wanted[-1]]] = False
    left = [device for device in wanted[1:] if tenancy.node[device] != tenancy.node[wanted[-1]]]
    assert list(screen.devices(order, nodes)) == left


def _decide(company: Company, row: int, group: Group, bound_caution: float) -> Decision:
    new, (mate,) = company.new_job(row), group.rows
    return decide(
        new, [company.partner(mate, group.devices)], lambda size: [company.meet(row, size, mate, group.devices)],
        bound_caution=bound_caution,
    )  # fmt: skip


def _least_mean_s(company: Company, row: int, group: Group, bound_caution: float) -> float:
    trials = _decide(company, row, group, bound_caution).trials
    return min((trial.together.mean_s for trial in trials if trial.together is not None), default=np.inf)

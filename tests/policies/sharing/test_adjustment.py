"""OJPAP: when it is triggered, and which worker moves where."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.ojpp.offline import place
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.ojpp.online_adjustment import WorkerMove, adjust_packing
from slurm_soda.policies.sharing.ojpp.packing import Packing, PackingJobs, PackingRules
from slurm_soda.policies.sharing.ojpp.strategies import find_strategy
from tests.policies.sharing.clusters import random_jobs, random_slowdown, violations

LOOSE = PackingRules(collision=0.2, interference=0.2, balance=0.1)


def three_devices(base: tuple[float, ...] = (0.2, 0.2, 0.2, 0.2)) -> Packing:
    """Jobs 0 and 1 disturb each other on device 0; jobs 2 and 3, of a quiet model, are alone on devices 1 and 2."""
    jobs = PackingJobs(
        np.ones(4, dtype=np.int64),
        np.array([0.3, 0.3, 0.3, 0.5]),
        np.array(base),
        np.zeros(4),
        np.zeros(4),
        np.array([0, 0, 1, 1]),
    )
    packing = Packing(jobs, np.array([[0.3, 0.05], [0.05, 0.05]]), 3, LOOSE)
    for job, device in enumerate((0, 0, 1, 2)):
        packing.join(job, device)
    return packing


def test_the_cheapest_worker_goes_where_most_room_is() -> None:
    packing = three_devices()
    assert adjust_packing(packing, [0.4, 0.0, 0.0], np.array([9.0, 5.0, 1.0, 1.0]), 10.0) == (WorkerMove(1, 0, 1, 5.0),)
    assert packing.residents == [[0], [2, 1], [3]]
    # were device 1 full, it would be device 2
    packing = three_devices((0.2, 0.2, 0.9, 0.2))
    assert [move.target for move in adjust_packing(packing, [0.4, 0.0, 0.0], np.ones(4), 10.0)] == [2]


@pytest.mark.parametrize(
    ("smoothed", "budget", "base"),
    [
        ([0.2, 0.0, 0.0], 10.0, (0.2, 0.2, 0.2, 0.2)),  # the bound is not exceeded
        ([0.4, 0.0, 0.0], 0.5, (0.2, 0.2, 0.2, 0.2)),  # costs too much
        ([0.4, 0.0, 0.0], 10.0, (0.2, 0.2, 0.9, 0.9)),  # nowhere to go
        ([0.0, 0.4, 0.4], 10.0, (0.2, 0.2, 0.2, 0.2)),  # nobody there to be rid of
    ],
)
def test_nothing_moves_without_need_means_or_place(
    smoothed: list[float], budget: float, base: tuple[float, ...]
) -> None:
    packing = three_devices(base)
    before = [list(here) for here in packing.residents]
    assert adjust_packing(packing, smoothed, np.ones(4), budget) == ()
    assert [sorted(here) for here in packing.residents] == before


def test_moves_keep_bounds_and_budget() -> None:
    rng = random.Random(12)
    moved = 0
    for _ in range(120):
        models = rng.randint(2, 5)
        jobs, slowdown = random_jobs(rng, 14, models, 3), random_slowdown(rng, models)
        packing = Packing(jobs, slowdown, 60, LOOSE)
        place(packing, find_strategy("ojpp", LOOSE).order(jobs))
        smoothed = [
            packing.theta(device) + rng.choice((0.0, 0.0, 0.3)) * packing.active[device] for device in range(60)
        ]
        cost, budget = np.array([rng.uniform(0, 5) for _ in range(14)]), rng.uniform(1, 15)
        worse = sorted((smoothed[device] for device in np.flatnonzero(packing.active)), reverse=True)
        median = worse[(len(worse) - 1) // 2]
        moves = adjust_packing(packing, smoothed, cost, budget)
        layout = tuple(tuple(packing.places.get(job, ())) for job in range(14))
        assert violations(jobs, slowdown, LOOSE, layout) == []
        assert sum(move.cost for move in moves) <= budget
        assert len({move.source for move in moves}) == len(moves)
        for move in moves:
            assert smoothed[move.source] > LOOSE.interference
            assert smoothed[move.source] >= median
        moved += len(moves)
    assert moved > 30


def test_senseless_costs_are_refused() -> None:
    for smoothed, cost in (([0.1], np.ones(4)), ([0.1] * 3, np.ones(3)), ([0.1] * 3, -np.ones(4))):
        with pytest.raises(PolicyError):
            adjust_packing(three_devices(), smoothed, cost, 1.0)

"""OJPP's placements: every bound from its definition, and the number of devices against an exact solver."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from benchmarks.ojpp.offline import place
from benchmarks.ojpp.patterns import Placement
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.memory_demand import collision_probability
from slurm_soda.policies.sharing.ojpp.packing import Packing, PackingJobs, PackingRules
from slurm_soda.policies.sharing.ojpp.strategies import STRATEGIES, find_strategy
from tests.policies.sharing.clusters import (
    devices_of,
    fewest_devices,
    random_jobs,
    random_slowdown,
    slowdowns_on,
    violations,
)

PAPER = PackingRules(collision=0.1, interference=0.2, balance=0.1)
"""Section 5.2."""


def placed(
    name: str, jobs: PackingJobs, slowdown: np.ndarray, bounds: PackingRules = PAPER, devices: int = 200
) -> tuple[Placement, Packing]:
    chosen = find_strategy(name, bounds)
    packing = Packing(jobs, slowdown, devices, chosen.rules)
    return place(packing, chosen.order(jobs)), packing


def few(*rows: tuple[int, float, float, float, float, int]) -> PackingJobs:
    workers, compute, base, extra, probability, model = zip(*rows, strict=True)
    floats = (np.array(column, dtype=float) for column in (compute, base, extra, probability))
    return PackingJobs(np.array(workers), *floats, model=np.array(model))


@pytest.mark.sample(6)
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("name", STRATEGIES)
def test_bounds_hold_by_definition(name: str, apart: bool) -> None:
    rng = random.Random(name)
    for _ in range(40):
        models = rng.randint(1, 6)
        jobs, slowdown = random_jobs(rng, rng.randint(1, 20), models, 5), random_slowdown(rng, models)
        bounds = PackingRules(
            rng.choice((0.02, 0.1, 0.3)), rng.choice((0.1, 0.2, 0.5)), rng.choice((0.03, 0.1, 0.4)), apart=apart
        )
        found, packing = placed(name, jobs, slowdown, bounds)
        assert violations(jobs, slowdown, find_strategy(name, bounds).rules, found.devices) == []
        assert all(found.devices)  # there are more devices than workers
        assert found.used == len(devices_of(found.devices)) <= int(jobs.workers.sum())
        for device, here in devices_of(found.devices).items():
            assert packing.theta(device) == pytest.approx(max(slowdowns_on(jobs, slowdown, here)))
            assert packing.collision(device) == pytest.approx(
                collision_probability(jobs.probability[list(here)].tolist()), abs=1e-12
            )


def test_scarce_devices_leave_jobs_waiting_whole() -> None:
    rng = random.Random(3)
    waited = 0
    for _ in range(60):
        jobs, slowdown = random_jobs(rng, 12, 4, 4), random_slowdown(rng, 4)
        found, packing = placed("ojpp", jobs, slowdown, devices=4)
        assert violations(jobs, slowdown, PAPER, found.devices) == []
        assert packing.used <= 4
        assert sorted(packing.places) == [job for job, devices in enumerate(found.devices) if devices]
        waited += sum(not devices for devices in found.devices)
    assert waited


def test_a_packing_forgets_those_who_left() -> None:
    rng = random.Random(4)
    jobs, slowdown = random_jobs(rng, 15, 4, 3), random_slowdown(rng, 4)
    found, packing = placed("ojpp", jobs, slowdown)
    gone = [job for job in range(15) if job % 2]
    for job in gone:
        for device in found.devices[job]:
            packing.leave(job, device)
    fresh = Packing(jobs, slowdown, 200, PAPER)
    for job in set(range(15)) - set(gone):
        for device in found.devices[job]:
            fresh.join(job, device)
    for job in range(15):
        np.testing.assert_array_equal(packing.open_to(job), fresh.open_to(job))
        np.testing.assert_allclose(packing.after(job), fresh.after(job))
    assert packing.used == fresh.used


def small_worlds(count: int) -> list[tuple[PackingJobs, np.ndarray]]:
    rng = random.Random(11)
    return [
        (random_jobs(rng, rng.randint(2, 6), models, 3), random_slowdown(rng, models))
        for models in [2, 3, 4] * (count // 3)
    ]


def test_number_of_devices_against_an_exact_solver() -> None:
    worlds = small_worlds(60)
    for bounds in (PAPER, PackingRules(collision=0.1, interference=0.2), PackingRules()):
        found = np.array([placed("ojpp", *world, bounds)[0].used for world in worlds])
        exact = np.array([fewest_devices(*world, bounds) for world in worlds])
        assert np.all(found >= exact)
        assert found.sum() / exact.sum() < 1.12
        assert np.mean(found == exact) > 0.6


def test_the_exact_solver_by_hand() -> None:
    # three workers of 0.4 need two devices; a job's own two workers need two if they must be apart
    assert fewest_devices(few(*[(1, 0.4, 0.1, 0.0, 0.0, 0)] * 3), np.zeros((1, 1)), PackingRules()) == 2
    assert fewest_devices(few((2, 0.4, 0.1, 0.0, 0.0, 0)), np.zeros((1, 1)), PackingRules()) == 2
    # beside the second job the first job's one worker is slowed by 0.2 and its other one not at all
    pair = few((2, 0.4, 0.1, 0.0, 0.0, 0), (1, 0.4, 0.1, 0.0, 0.0, 1))
    slowdown = np.array([[0.0, 0.2], [0.0, 0.0]])
    assert fewest_devices(pair, slowdown, PackingRules(balance=0.3)) == 2
    assert fewest_devices(pair, slowdown, PackingRules(balance=0.1)) == 3


def test_strategies_heed_their_own_bounds_only() -> None:
    calm, loud = (1, 0.3, 0.2, 0.3, 0.5, 0), (1, 0.3, 0.2, 0.3, 0.5, 1)
    jobs = few(calm, loud)
    slowdown = np.array([[0.0, 1.0], [1.0, 0.0]])
    used = {name: placed(name, jobs, slowdown)[0].used for name in STRATEGIES}
    assert used == {"best-fit": 1, "i-greedy": 2, "b-greedy": 1, "c-greedy": 2, "greedy": 2, "ojpp": 2}
    silent = np.zeros((2, 2))  # then only collisions keep them apart
    used = {name: placed(name, jobs, silent)[0].used for name in STRATEGIES}
    assert used == {"best-fit": 1, "i-greedy": 1, "b-greedy": 1, "c-greedy": 2, "greedy": 2, "ojpp": 2}
    with pytest.raises(PolicyError, match="choose one of best-fit"):
        find_strategy("ffd", PAPER)


def test_orders() -> None:
    jobs = few(
        (1, 0.1, 0.1, 0.1, 0.4, 0), (1, 0.5, 0.1, 0.1, 0.2, 0), (1, 0.5, 0.3, 0.1, 0.2, 0), (1, 0.9, 0.1, 0.1, 0.9, 0)
    )
    assert find_strategy("greedy", PAPER).order(jobs).tolist() == [3, 2, 1, 0]
    # the two least likely to peak come first, the larger of them before the other
    assert find_strategy("ojpp", PAPER).order(jobs).tolist()[:2] == [2, 1]


def test_workers_of_a_job_may_share_a_device_as_in_the_paper() -> None:
    jobs = few((3, 0.3, 0.2, 0.1, 0.01, 0))
    assert placed("ojpp", jobs, np.zeros((1, 1)))[0].used == 3
    assert placed("ojpp", jobs, np.zeros((1, 1)), PackingRules(0.1, 0.2, 0.1, apart=False))[0].used == 1


def test_one_decision_over_2000_devices_and_5000_jobs() -> None:
    rng = random.Random(1)
    jobs, slowdown = random_jobs(rng, 5_000, 20, 3), random_slowdown(rng, 20)
    found, packing = placed("ojpp", jobs, slowdown, devices=2_000)
    assert packing.used == 2_000
    assert sum(map(bool, found.devices)) > 1_000


@pytest.mark.parametrize(
    "broken",
    [
        lambda: few((0, 0.1, 0.1, 0.1, 0.1, 0)),
        lambda: few((1, 1.1, 0.1, 0.1, 0.1, 0)),
        lambda: few((1, 0.1, 0.6, 0.6, 0.1, 0)),
        lambda: few((1, 0.1, math.nan, 0.1, 0.1, 0)),
        lambda: Packing(few((1, 0.1, 0.1, 0.1, 0.1, 1)), np.zeros((1, 1)), 1, PAPER),
        lambda: Packing(few((1, 0.1, 0.1, 0.1, 0.1, 0)), np.zeros((1, 2)), 1, PAPER),
        lambda: PackingJobs(
            np.ones(2, dtype=np.int64), *(np.zeros(1) for _ in range(4)), model=np.zeros(1, dtype=np.int64)
        ),
        lambda: PackingRules(collision=-0.1),
        lambda: PackingRules(balance=math.nan),
    ],
)
def test_senseless_input_is_refused(broken) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolicyError):
        broken()

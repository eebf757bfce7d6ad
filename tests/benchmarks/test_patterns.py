"""Queues packed by patterns: every bound from its definition, and the number of devices against an exact solver."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.ojpp.patterns import Peaks, WorkerPatterns, enumerate_patterns, pack_queue, stalled
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.ojpp.packing import PackingJobs, PackingRules
from tests.policies.sharing.clusters import device_allows, fewest_devices, random_jobs, random_slowdown, violations

PAPER = PackingRules(collision=0.1, interference=0.2, balance=0.1)


@pytest.mark.parametrize("apart", [True, False])
def test_bounds_hold_by_definition(apart: bool) -> None:
    rng = random.Random(5)
    for _ in range(15):
        models = rng.randint(1, 5)
        jobs, slowdown = random_jobs(rng, rng.randint(1, 10), models, 5), random_slowdown(rng, models)
        rules = PackingRules(
            rng.choice((0.02, 0.1, 0.3)), rng.choice((0.1, 0.2, 0.5)), rng.choice((0.03, 0.1, 0.4)), apart=apart
        )
        found = pack_queue(jobs, slowdown, rules, rng.choice((0.0, 0.95)), tries=60)
        assert violations(jobs, slowdown, rules, found.devices) == []
        assert all(found.devices)
        assert found.used == len({device for devices in found.devices for device in devices})


def test_patterns_are_those_that_a_device_allows() -> None:
    rng = random.Random(6)
    for _ in range(5):
        jobs, slowdown = random_jobs(rng, 6, 3, 2), random_slowdown(rng, 3)
        found = enumerate_patterns(jobs, slowdown, PAPER)
        sets = {tuple(np.repeat(np.arange(6), row).tolist()) for row in found.count}
        allowed = {
            here
            for code in range(1, 2**6)
            if device_allows(jobs, slowdown, PAPER, here := tuple(at for at in range(6) if code >> at & 1))
        }
        assert sets == allowed


def test_number_of_devices_against_an_exact_solver() -> None:
    rng = random.Random(11)
    worlds = [
        (random_jobs(rng, rng.randint(2, 6), models, 3), random_slowdown(rng, models)) for models in [2, 3, 4] * 8
    ]
    for bounds in (PAPER, PackingRules(collision=0.1, interference=0.2), PackingRules()):
        found = np.array([pack_queue(*world, bounds, tries=80).used for world in worlds])
        exact = np.array([fewest_devices(*world, bounds) for world in worlds])
        assert np.all(found >= exact)
        assert found.sum() / exact.sum() < 1.03


def lost(jobs: PackingJobs, slowdown: np.ndarray, devices: tuple[tuple[int, ...], ...]) -> float:
    """Mean speed that jobs without peaks lose, from the definition."""
    speed = []
    for job, places in enumerate(devices):
        worst = max(
            sum(
                slowdown[jobs.model[job], jobs.model[other]] * there.count(place) for other, there in enumerate(devices)
            )
            - slowdown[jobs.model[job], jobs.model[job]]
            for place in places
        )
        speed.append(1 - 1 / (1 + worst))
    return float(np.mean(speed))


def test_a_guarantee_is_kept() -> None:
    rng = random.Random(8)
    fewer = 0
    for _ in range(10):
        drawn, slowdown = random_jobs(rng, 8, 3, 4), random_slowdown(rng, 3)
        jobs = PackingJobs(
            drawn.workers, drawn.compute, drawn.base, 0 * drawn.extra, 0 * drawn.probability, drawn.model
        )
        whole, kept = pack_queue(jobs, slowdown, PackingRules(interference=0.5), tries=60), 0.97
        found = pack_queue(jobs, slowdown, PackingRules(interference=0.5), kept, tries=60)
        assert lost(jobs, slowdown, found.devices) <= 1 - kept + 1e-9
        assert found.used >= whole.used
        fewer += found.used > whole.used
    assert fewer
    alone = pack_queue(jobs, slowdown + 0.1, PackingRules(), 1.0, tries=20)
    assert alone.used == jobs.workers.sum()


def test_the_same_queue_is_packed_alike() -> None:
    rng = random.Random(9)
    jobs, slowdown = random_jobs(rng, 8, 3, 4), random_slowdown(rng, 3)
    assert pack_queue(jobs, slowdown, PAPER, 0.95, tries=50) == pack_queue(jobs, slowdown, PAPER, 0.95, tries=50)


def test_patterns_stop_at_the_most() -> None:
    rng = random.Random(10)
    jobs = random_jobs(rng, 10, 2, 2)
    found = enumerate_patterns(jobs, np.zeros((2, 2)), PackingRules(), most=12)
    assert isinstance(found, WorkerPatterns)
    assert len(found.size) == 12
    assert (np.diff(found.size) >= 0).all()


@pytest.mark.parametrize("guarantee", [-0.1, 1.1])
def test_senseless_guarantees_are_refused(guarantee: float) -> None:
    jobs = random_jobs(random.Random(1), 2, 1, 1)
    with pytest.raises(PolicyError, match="guaranteed"):
        pack_queue(jobs, np.zeros((1, 1)), PAPER, guarantee)
    with pytest.raises(PolicyError, match="table of slowdowns"):
        enumerate_patterns(random_jobs(random.Random(1), 20, 3, 1), np.zeros((1, 1)), PAPER)


def test_waiting_for_memory_by_hand() -> None:
    # both peaks fit: nobody waits, however often they meet
    assert stalled((Peaks(0.2, 0.3, 0.5), Peaks(0.2, 0.3, 0.5))) == (0.0, 0.0)
    # they do not: both wait half of the time in which they meet
    assert stalled((Peaks(0.3, 0.6, 0.5), Peaks(0.3, 0.3, 0.2))) == pytest.approx((0.05, 0.05))
    # a third one that never peaks does not wait
    assert stalled((Peaks(0.3, 0.6, 0.5), Peaks(0.2, 0.3, 0.2), Peaks(0.1, 0.0, 0.0))) == pytest.approx((0.05, 0.05, 0))


def test_waiting_for_memory_against_chance() -> None:
    rng = np.random.default_rng(3)
    demands = (Peaks(0.1, 0.5, 0.3), Peaks(0.2, 0.4, 0.4), Peaks(0.1, 0.3, 0.5))
    draws = rng.random((200_000, 3)) < [one.probability for one in demands]
    over = 0.4 + draws @ np.array([one.extra for one in demands]) > 1
    crowd = draws.sum(axis=1)
    waits = draws & (over & (crowd > 1))[:, None]
    expected = (waits * (1 - 1 / np.maximum(crowd, 1))[:, None]).mean(axis=0)
    assert stalled(demands) == pytest.approx(expected.tolist(), abs=0.005)

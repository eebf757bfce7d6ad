"""Prints the figures of docs/policies/sharing.md: ``python -m tests.policies.sharing.table`` (about half a minute)."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.chapter6.colocate import Gpu, colocate
from benchmarks.ojpp.offline import place
from benchmarks.ojpp.patterns import Placement, pack_queue
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.arithmetic.completion_times import mean_pair_completions_s
from slurm_soda.policies.sharing.colocation.speedup_models import GpuLoad, LinearSpeedup
from slurm_soda.policies.sharing.ojpp.online_adjustment import adjust_packing
from slurm_soda.policies.sharing.ojpp.packing import Packing, PackingJobs, PackingRules
from slurm_soda.policies.sharing.ojpp.strategies import STRATEGIES, find_strategy
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from tests.policies.sharing.clusters import Table, fewest_devices, random_jobs, random_slowdown
from tests.policies.sharing.lodgers import big

BOUNDS = (PackingRules(0.1, 0.2, 0.1), PackingRules(0.1, 0.1, 0.2), PackingRules(0.1, 0.2), PackingRules())
WORLDS = 300


def placed(name: str, jobs: PackingJobs, slowdown: Table, bounds: PackingRules, devices: int = 200) -> Placement:
    if name == "patterns":
        return pack_queue(jobs, slowdown, bounds, tries=120)
    chosen = find_strategy(name, bounds)
    return place(Packing(jobs, slowdown, devices, chosen.rules), chosen.order(jobs))


def gaps() -> None:
    rng = random.Random(11)
    worlds = []
    for _ in range(WORLDS):
        models = rng.choice((2, 3, 4, 6))
        worlds.append((random_jobs(rng, rng.randint(3, 9), models, 4), random_slowdown(rng, models)))
    workers = sum(int(jobs.workers.sum()) for jobs, _ in worlds)
    print(f"{WORLDS} worlds, {workers} workers")
    print("| collision, interference, balance | strategy | exact | found | gap % | optimal % | most |")
    for bounds in BOUNDS:
        exact = np.array([fewest_devices(*world, bounds) for world in worlds])
        for name in ("greedy", "ojpp", "patterns"):
            found = np.array([placed(name, *world, bounds).used for world in worlds])
            gap, equal = 100 * (found.sum() / exact.sum() - 1), 100 * np.mean(found == exact)
            print(
                f"| {bounds.collision:g}, {bounds.interference:g}, {bounds.balance:g} | {name} | {exact.sum()} | "
                f"{found.sum()} | {gap:.1f} | {equal:.0f} | {(found - exact).max()} |"
            )


def taken_s(decide: Callable[[], object]) -> str:
    """Best of three, in processor time of one core."""
    runs = []
    for _ in range(3):
        started = time.process_time()
        decide()
        runs.append(time.process_time() - started)
    return f"{min(runs):.2f}"


def shared_plan(policy: Policy, snapshot: SharingSnapshot) -> SharingPlan:
    plan = policy.decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def scale() -> None:
    rng, random_columns = random.Random(1), np.random.default_rng(1)
    slowdown = random_slowdown(rng, 20)
    alike = random_jobs(rng, 5_000, 20, 10)
    floats = [random_columns.uniform(*ends, 5_000) for ends in ((0.05, 0.5), (0.05, 0.4), (0.0, 0.5), (0.01, 0.3))]
    various = PackingJobs(alike.workers, *floats, model=alike.model)
    for name in STRATEGIES:
        times = [taken_s(partial(placed, name, jobs, slowdown, BOUNDS[0], 2_000)) for jobs in (alike, various)]
        print(f"{name}: {times[0]} s with 20 kinds of workers, {times[1]} s all different")
    chosen = find_strategy("ojpp", BOUNDS[0])
    packing = Packing(various, slowdown, 3_000, chosen.rules)
    place(packing, chosen.order(various))
    started = time.process_time()
    moves = adjust_packing(packing, [0.3] * 3_000, np.ones(5_000), 1e9)
    print(f"adjust, {len(moves)} moves on 3 000 devices: {time.process_time() - started:.2f} s")
    loads, judge = (
        [GpuLoad(rng.uniform(1, 10), rng.uniform(1, 10)) for _ in range(5_000)],
        LinearSpeedup(1.9, -0.03, -0.03),
    )
    print("colocate:", taken_s(lambda: colocate(loads, [Gpu()] * 2_000, judge)), "s")
    new, running = random_columns.uniform(10, 1e5, (5_000, 1)), random_columns.uniform(10, 1e5, 2_000)
    xi = random_columns.uniform(1, 3, (2, 5_000, 2_000))
    for name, busy in itertools.product(("ojpp", "ojpap", "colocation"), (False, True)):
        snapshot = big(2_000, 5_000, busy=busy)
        taken = taken_s(partial(make_policy(name).decide, snapshot))
        decisions = shared_plan(make_policy(name), snapshot).decisions
        told = taken_s(partial(decisions.__getitem__, list(decisions)[-1]))
        print(f"policy {name}, GPUs {'taken' if busy else 'free'}: {taken} s; told of a job that waits: {told} s")
    print(
        "pair_means_s, 5 000 x 2 000 pairs:", taken_s(lambda: mean_pair_completions_s(new, running, xi[0], xi[1])), "s"
    )


if __name__ == "__main__":
    gaps()
    scale()

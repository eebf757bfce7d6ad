"""Jobs for packing, bounds checked from their definitions, and the fewest devices by an exact solver."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from slurm_soda.policies.sharing.ojpp.packing import PackingJobs, PackingRules

Table = NDArray[np.float64]
EDGE = 1e-6


def random_jobs(rng: random.Random, count: int, models: int, most_workers: int) -> PackingJobs:
    """Jobs whose demand goes with their model; about two to four workers share a device."""
    kinds = [
        (rng.uniform(0.1, 0.6), rng.uniform(0.05, 0.45), rng.uniform(0.0, 0.5), rng.choice((0.02, 0.1, 0.2, 0.4)))
        for _ in range(models)
    ]
    model = [rng.randrange(models) for _ in range(count)]
    columns = np.array([kinds[row] for row in model]).reshape(count, 4).T
    workers = [rng.randint(1, most_workers) for _ in range(count)]
    return PackingJobs(np.array(workers), *columns, model=np.array(model, dtype=np.int64))


def random_slowdown(rng: random.Random, models: int) -> Table:
    """Most pairs hardly disturb each other, some much, and not both alike."""
    return np.array(
        [[rng.choice((0.02, 0.05, 0.1, 0.3)) * rng.random() * 2 for _ in range(models)] for _ in range(models)]
    )


def slowdowns_on(jobs: PackingJobs, slowdown: Table, here: tuple[int, ...]) -> list[float]:
    """Of each worker on a device, by definition."""
    return [
        sum(slowdown[jobs.model[one], jobs.model[other]] for spot, other in enumerate(here) if spot != at)
        for at, one in enumerate(here)
    ]


def device_allows(jobs: PackingJobs, slowdown: Table, rules: PackingRules, here: tuple[int, ...]) -> bool:
    """Every bound of one device (balance concerns several), collisions by enumeration."""
    if rules.apart and len(set(here)) < len(here):
        return False
    rows = list(here)
    if jobs.compute[rows].sum() > 1 + EDGE:
        return False
    if jobs.base[rows].sum() + jobs.extra[rows].max(initial=0) > 1 + EDGE:
        return False
    tau = sum(
        math.prod(
            jobs.probability[row] if peak else 1 - jobs.probability[row] for row, peak in zip(here, peaks, strict=True)
        )
        for peaks in itertools.product((0, 1), repeat=len(here))
        if sum(peaks) >= 2
    )
    worst = max(slowdowns_on(jobs, slowdown, here), default=0.0)
    return tau <= rules.collision + EDGE and worst <= rules.interference + EDGE


def devices_of(placement: tuple[tuple[int, ...], ...]) -> dict[int, tuple[int, ...]]:
    """Jobs by device."""
    found: dict[int, tuple[int, ...]] = {}
    for job, devices in enumerate(placement):
        for device in devices:
            found[device] = (*found.get(device, ()), job)
    return found


def violations(
    jobs: PackingJobs, slowdown: Table, rules: PackingRules, placement: tuple[tuple[int, ...], ...]
) -> list[str]:
    """What a placement breaks, from the definitions."""
    found = []
    by_device = devices_of(placement)
    values: dict[int, list[float]] = {}
    for device, here in by_device.items():
        if not device_allows(jobs, slowdown, rules, here):
            found.append(f"device {device}: {here}")
        for job, value in zip(here, slowdowns_on(jobs, slowdown, here), strict=True):
            values.setdefault(job, []).append(value)
    for job, devices in enumerate(placement):
        if devices and len(devices) != jobs.workers[job]:
            found.append(f"job {job} has {len(devices)} of {jobs.workers[job]} workers")
    found += [f"job {job}: {own}" for job, own in values.items() if max(own) - min(own) > rules.balance + EDGE]
    return found


def fewest_devices(jobs: PackingJobs, slowdown: Table, rules: PackingRules) -> int:
    """Exact: how often each allowed set of jobs occurs on a device, by CP-SAT."""
    count = len(jobs)
    sets = [
        here
        for size in range(1, count + 1)
        for here in itertools.combinations(range(count), size)
        if device_allows(jobs, slowdown, rules, here)
    ]
    model = cp_model.CpModel()
    times = [model.new_int_var(0, int(jobs.workers[list(here)].min()), f"n{row}") for row, here in enumerate(sets)]
    used = [model.new_bool_var(f"u{row}") for row in range(len(sets))]
    for number, flag in zip(times, used, strict=True):
        model.add(number == 0).only_enforce_if(~flag)
    for job in range(count):
        model.add(
            sum(number for number, here in zip(times, sets, strict=True) if job in here) == int(jobs.workers[job])
        )
    values = [dict(zip(here, slowdowns_on(jobs, slowdown, here), strict=True)) for here in sets]
    for one, other in itertools.combinations(range(len(sets)), 2):
        both = values[one].keys() & values[other].keys()
        if any(abs(values[one][job] - values[other][job]) > rules.balance + EDGE for job in both):
            model.add(used[one] + used[other] <= 1)
    model.minimize(sum(times))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        raise AssertionError("the exact solver found no optimum")
    return round(solver.objective_value)

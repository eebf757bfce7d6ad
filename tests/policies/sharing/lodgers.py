"""Clusters for the policies that bound interference, and what their plans break, from the definitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.sharing.scenes import Table, scene

EDGE = 1e-6


@dataclass(frozen=True, slots=True)
class Fitting(Table):
    """Everything fits but what is told not to."""

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        models = {one.model for one in together}
        return not any(misfit <= models for misfit in self.misfits)


def random_scene(rng: random.Random) -> SharingSnapshot:
    """Up to six nodes, jobs on some of their GPUs, and others that wait; some shared already."""
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 6))]
    nodes = NodeTable.uniform(len(sizes), 4, cpus=rng.choice((4, 8, 28)))
    models = [f"m{at}" for at in range(rng.randint(1, 4))]
    pairs = {(one, other): (1 + rng.choice((0, 0.05, 0.15, 0.5)), 1 + rng.choice((0, 0.05, 0.15, 0.5)))
             for at, one in enumerate(models) for other in models[at:] if rng.random() < 0.9}  # fmt: skip
    misfits = frozenset(frozenset(rng.sample(models, min(2, len(models)))) for _ in range(rng.randint(0, 1)))
    jobs: list[dict[str, Any]] = []
    for _ in range(rng.randint(0, 6)):
        node = rng.randrange(len(sizes))
        mine = sorted(rng.sample(range(4 * node, 4 * node + 4), rng.randint(1, 2)))
        jobs.append({"job_id": len(jobs) + 1, "on": tuple(mine), **_about(rng, models)})
    for _ in range(rng.randint(1, 15)):
        gpus = rng.choice((1, 1, 1, 2, 3, 4, 6))
        jobs.append(
            {"job_id": len(jobs) + 1, "gpus": gpus, "cpus": gpus, "submit_s": rng.random(), **_about(rng, models)}
        )
    return scene(jobs, nodes, Fitting(pairs, misfits=misfits))


def _about(rng: random.Random, models: Sequence[str]) -> dict[str, Any]:
    return {
        "model": rng.choice((*models, *models, "")), "shares": rng.random() < 0.9, "remaining_s": rng.uniform(10, 1000),
        "max_slowdown": rng.choice((np.inf, np.inf, 1.0, 1.1, 1.3)), "start_s": rng.uniform(0, 900.0),
    }  # fmt: skip


def holders(snapshot: SharingSnapshot, plan: Plan) -> dict[int, list[int]]:
    """Rows on each device once the plan is carried out."""
    assert isinstance(plan, SharingPlan)
    placed = {snapshot.jobs.row(job_id): devices for job_id, devices in plan.devices.items()}
    found: dict[int, list[int]] = {}
    for row in range(len(snapshot.jobs)):
        for device in placed.get(row, tuple(snapshot.devices.of(row).tolist())):
            found.setdefault(device, []).append(row)
    return found


def slowdown(snapshot: SharingSnapshot, row: int, there: Sequence[int]) -> float:
    """Summed slowdowns of a job beside others; infinite where nobody knows."""
    sharing, known = snapshot.sharing, snapshot.known
    total = 0.0
    for other in there:
        if other == row:
            continue
        if min(sharing.kind[[row, other]]) < 0:
            return np.inf
        xi = known.xi(sharing.kinds[sharing.kind[row]], (sharing.kinds[sharing.kind[other]],))
        total += np.inf if xi is None else max(xi.value - 1, 0)
    return total


def broken(snapshot: SharingSnapshot, plan: Plan, most: int, interference: float = np.inf) -> list[str]:
    """Bounds that do not hold on a device that the plan gives to somebody who was not there."""
    assert isinstance(plan, SharingPlan)
    sharing, found = snapshot.sharing, []
    placed = {snapshot.jobs.row(job_id): devices for job_id, devices in plan.devices.items()}
    new = {device for row, devices in placed.items() for device in devices if device not in snapshot.devices.of(row)}
    for device, rows in holders(snapshot, plan).items():
        if len(rows) < 2 or device not in new:
            continue
        if len(rows) > most:
            found.append(f"GPU {device} has {len(rows)} jobs")
        if not sharing.shares[rows].all():
            found.append(f"GPU {device}: somebody does not share")
        if snapshot.known.fits([sharing.kinds[sharing.kind[row]] for row in rows]) is not True:
            found.append(f"GPU {device}: not known to fit")
        for row in rows:
            theta = slowdown(snapshot, row, rows)
            if theta > min(interference, sharing.max_slowdown[row] - 1) + EDGE:
                found.append(f"GPU {device}: row {row} is slowed by {theta}")
    for job_id, pieces in plan.places.items():
        by_node = np.bincount(np.searchsorted(snapshot.devices.first, plan.devices.get(job_id, ()), side="right") - 1,
                              minlength=len(snapshot.nodes))  # fmt: skip
        wanted = np.zeros(len(snapshot.nodes), dtype=np.int64)
        for piece in pieces:
            wanted[piece.node] += piece.gpus
        if (by_node != wanted).any():
            found.append(f"job {job_id} has places {pieces} and devices {plan.devices.get(job_id)}")
    return [*found, *_nodes(snapshot, plan)]


def _nodes(snapshot: SharingSnapshot, plan: Plan) -> list[str]:
    taken = np.zeros(len(snapshot.nodes), dtype=np.int64)
    starts = set(plan.starts.tolist())
    for job_id, pieces in plan.places.items():
        for piece in pieces:
            taken[piece.node] += piece.cpus if job_id in starts else 0
    return [
        f"node {node}: CPUs given twice"
        for node in np.flatnonzero(taken > np.maximum(snapshot.nodes.cpus_free, 0)).tolist()
    ]


def big(gpus: int, pending: int, *, busy: bool) -> SharingSnapshot:
    """A cluster of 8 GPUs a node, all taken if it is busy, and a long queue; for measuring."""
    rng = random.Random(1)
    models = [f"m{at}" for at in range(20)]
    pairs = {(one, other): (1 + rng.choice((0.02, 0.08, 0.15, 0.5)), 1 + rng.choice((0.02, 0.08, 0.15, 0.5)))
             for at, one in enumerate(models) for other in models[at:]}  # fmt: skip
    jobs: list[dict[str, Any]] = []
    device = 0
    while busy and device < gpus:
        size = min(rng.choice((1, 1, 2, 4)), 8 - device % 8)
        jobs.append({"job_id": len(jobs) + 1, "on": tuple(range(device, device + size)), "model": rng.choice(models),
                     "start_s": 0.0})  # fmt: skip
        device += size
    for _ in range(pending):
        size = rng.choice((1, 1, 1, 2, 2, 4, 8))
        jobs.append({"job_id": len(jobs) + 1, "gpus": size, "cpus": size, "model": rng.choice(models),
                     "submit_s": rng.random(), "max_slowdown": rng.choice((np.inf, 1.2))})  # fmt: skip
    return scene(jobs, NodeTable.uniform(gpus // 8, 8, cpus=64), Fitting(pairs))

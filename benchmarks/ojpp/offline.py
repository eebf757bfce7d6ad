"""A whole queue placed at once, on as few devices as the bounds allow: OJPP's Algorithms 1 and 2 (Sections 4.2 and 4.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from benchmarks.ojpp.patterns import Placement
from slurm_soda.policies.sharing.ojpp.packing import Packing


def place(packing: Packing, order: Iterable[int]) -> Placement:
    """Place whole jobs, one after the other, into a packing that may hold others already.

    A job goes to active devices if all of its workers find one there, else to active and new ones (Algorithm 2). A job
    for which the devices do not suffice waits, and the next one is tried.

    Complexity: O(w m) for w workers and m devices, in columns; the paper says O(m n) for n jobs of one worker.
    """
    placed = {job: tuple(found) for job in map(int, order) if (found := place_job(packing, job))}
    return Placement(tuple(placed.get(job, ()) for job in range(len(packing.jobs))), packing.used)


def place_job(packing: Packing, job: int) -> list[int]:
    """Devices of the workers of one job, which are then taken; none if it has to wait."""
    enough = packing.jobs.workers[job] if packing.rules.apart else 1
    found = []
    if np.count_nonzero(packing.open_to(job) & packing.active) >= enough:
        found = _attempt(packing, job, fresh=False)
    if not found and packing.used < len(packing):
        found = _attempt(packing, job, fresh=True)
    return found


def _attempt(packing: Packing, job: int, *, fresh: bool) -> list[int]:
    """All workers or none.

    With new devices, on which a worker is not slowed at all, balance leaves the others no more than its bound.
    """
    balance, workers = packing.rules.balance, int(packing.jobs.workers[job])
    found: list[int] = []
    low, high = 0.0, balance if fresh and workers > 1 else math.inf
    for _ in range(workers):
        device = _choose(packing, job, low, high, fresh)
        if device is None:
            break
        own = packing.own(job, device)
        low, high = max(low, own - balance), min(high, own + balance)
        packing.join(job, device)
        found.append(device)
    if len(found) == workers and packing.spread(job) <= balance + 1e-9:
        return found
    for device in found:
        packing.leave(job, device)
    return []


def _choose(packing: Packing, job: int, low: float, high: float, fresh: bool) -> int | None:
    """The active device by the rules' choice, then by room, then the first; a new one if there is none and may be."""
    ok = packing.open_to(job, low, high)
    active = np.flatnonzero(ok & packing.active)
    if len(active):
        if packing.rules.least_slowdown_first:
            theta = packing.after(job)[active]
            active = active[theta <= theta.min() + 1e-12]
        return int(active[np.argmin(packing.capacity_after(job)[active])])
    new = np.flatnonzero(ok & ~packing.active)
    return int(new[0]) if fresh and len(new) else None

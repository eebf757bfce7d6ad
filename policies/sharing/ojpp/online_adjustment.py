"""Moving workers when interference grows at run time: the online adjustment of OJPP (OJPAP, Sections 3.5 and 4.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.ojpp.packing import Packing
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn


class WorkerMove(NamedTuple):
    """One worker changes its device."""

    job: int
    source: int
    target: int
    cost: float


AllowedTargets = Callable[[int, int], BoolColumn | None]
"""Given a job and the device that a worker of it leaves: devices to which that may go; None if it must stay."""


def adjust_packing(
    packing: Packing, smoothed: Sequence[float], cost: FloatColumn, budget: float, where: AllowedTargets | None = None
) -> tuple[WorkerMove, ...]:
    """Moves that take workers off disturbed devices; ``packing`` shows them carried out.

    The worse half of the active devices is looked at, the worst first, as far as its interference exceeds the bound. Of
    each the worker that is cheapest to move goes to the device with the most room that may take it (an empty one is
    such, too), where it is disturbed less, as the bound holds there. So do the others; no job whose worker it leaves gets
    out of balance, and all costs together stay within the budget.

    Args:
        smoothed: theta' by device, observed.
        cost: migration cost of a worker, by job.
        budget: most allowed sum of costs (Equation 19), in the same unit.
        where: what else stands in the way of a move; left out, nothing does.

    Complexity: O(m log m) to sort m devices, and O(m) a move.

    Raises:
        PolicyError: not one value for each device and job, or a negative cost.
    """
    if len(smoothed) != len(packing) or len(cost) != len(packing.jobs) or np.any(~(np.asarray(cost) >= 0)):
        raise PolicyError("adjusting needs one interference a device, and one cost of 0 or more a job")
    active = sorted(np.flatnonzero(packing.active).tolist(), key=lambda device: (-smoothed[device], device))
    moves: list[WorkerMove] = []
    for source in active[: math.ceil(len(active) / 2)]:
        if smoothed[source] <= packing.rules.interference or len(packing.residents[source]) < 2:
            continue
        job = min(packing.residents[source], key=lambda row: (cost[row], row))
        if cost[job] > budget:
            continue
        may = where(job, source) if where is not None else None
        if where is not None and may is None:
            continue
        target = _target(packing, job, source, may)
        if target is not None:
            budget -= float(cost[job])
            moves.append(WorkerMove(job, source, target, float(cost[job])))
    return tuple(moves)


def _target(packing: Packing, job: int, source: int, may: BoolColumn | None) -> int | None:
    """Where the worker went; None if it stays."""
    spreads = {other: packing.spread(other) for other in packing.residents[source] if other != job}
    packing.leave(job, source)
    # Those who stay are slowed less, which may be too much less for the rest of their jobs.
    balance = packing.rules.balance + 1e-9
    upset = any(packing.spread(other) > max(balance, before) for other, before in spreads.items())
    others = packing.values(job)
    low, high = (max(others) - balance, min(others) + balance) if others else (0.0, math.inf)
    ok = packing.open_to(job, low, high)
    ok[source] = False
    if may is not None:
        ok &= may
    candidates = np.flatnonzero(ok)
    if upset or not len(candidates):
        packing.join(job, source)
        return None
    target = int(candidates[np.argmax(packing.capacity_after(job)[candidates])])
    packing.join(job, target)
    return target

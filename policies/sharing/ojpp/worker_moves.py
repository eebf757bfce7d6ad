"""Workers that move while jobs run: OJPAP over a cluster (Sections 3.5 and 4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.ojpp.gang_placer import GangPlacer
from slurm_soda.policies.sharing.ojpp.online_adjustment import WorkerMove, adjust_packing
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, JobState

_COSTLY = 1e300


@dataclass(frozen=True, slots=True)
class InterferenceTrigger:
    """When interference counts as lasting (Equation 18).

    A policy keeps nothing between decisions. So the average is that of a filter that started from none when the last of the
    jobs on the device started, and has observed the same interference ever since, once in ``interval_s``: after n
    observations it is (1 - a^n) theta.

    Raises:
        PolicyError: a weight that is not from 0 to below 1, or an interval that is not positive.
    """

    weight: float
    interval_s: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight < 1.0 or not 0.0 < self.interval_s < math.inf:
            raise PolicyError(
                f"the weight of the past must be from 0 to below 1, and the interval positive, not {self.weight!r} and "
                f"{self.interval_s!r} s"
            )

    def smoothed(self, theta: float, lasted_s: float) -> float:
        """The average after some time of this interference."""
        seen = math.floor(max(lasted_s, 0.0) / self.interval_s + 1e-9)
        return (1.0 - self.weight**seen) * theta


class PlannedMove(NamedTuple):
    """A worker that moves, for the plan and for its explanation."""

    move: WorkerMove
    preempt: PreemptJob
    average: float
    """Interference on the device it leaves, smoothed over time."""
    budget_gpu_s: float
    """For all moves of the decision."""


def plan_moves(
    gang_placer: GangPlacer, trigger: InterferenceTrigger, move_s: float, budget_gpu_s: float, min_run_s: float
) -> tuple[PlannedMove, ...]:
    """Move workers off disturbed devices.

    Besides the bounds: only jobs that can checkpoint and ran ``min_run_s``; a worker of a gang stays on its node, as its
    CPUs do; and of two jobs that share a GPU only one moves, as nobody can join a job that is on its way. Interference is
    what is known by now of those who are there, so it changes with what was measured.

    A host whose guests would lose their seats, or that may not be preempted, stays. Where nobody can start in the decision
    that stops it, the job only leaves, and is placed by the next one, within the same bounds.

    Complexity: O(m log m + m a move) for m devices, and O(jobs on GPUs).
    """
    snapshot, packing = gang_placer.snapshot, gang_placer.packing
    if math.isinf(packing.rules.interference):
        return ()
    jobs = snapshot.jobs
    smoothed = _smoothed(gang_placer, trigger)
    able = (jobs.state == JobState.RUNNING) & jobs.preemptible & ~gang_placer.demands.never_shares
    able &= snapshot.now_s - np.nan_to_num(jobs.start_s, nan=np.inf) >= min_run_s
    guest_rules = gang_placer.gpu_occupancy.guest_rules
    if guest_rules.mechanism.revokes or not guest_rules.mechanism.preempts_hosts:
        jobs_on = gang_placer.gpu_occupancy.jobs_on
        hosts = [row for row in np.flatnonzero(able).tolist() if guest_rules.guests(row, jobs_on.__getitem__)]
        able[hosts] = False
    cost: FloatColumn = np.where(able, move_s * jobs.gpus, _COSTLY)
    moved: set[int] = set()
    """Jobs that were asked; each is asked once."""

    def where(row: int, source: int) -> BoolColumn | None:
        mine = packing.places[row]
        there = [[other for other in packing.residents[device] if other != row] for device in mine if device != source]
        if row in moved or any(other in moved for others in [packing.residents[source], *there] for other in others):
            return None
        if not all(gang_placer.demands.fit(row, others) for others in there):
            return None
        ok = _where(gang_placer, row, source, moved)
        moved.add(row)
        return ok

    moves = adjust_packing(packing, smoothed, cost, min(budget_gpu_s, _COSTLY / 2), where)
    for one in moves:
        _carry_out(gang_placer, one)
    return tuple(
        PlannedMove(one, _preempt(gang_placer, one, smoothed), smoothed[one.source], budget_gpu_s) for one in moves
    )


def _smoothed(gang_placer: GangPlacer, trigger: InterferenceTrigger) -> list[float]:
    """Average interference by device."""
    snapshot, packing = gang_placer.snapshot, gang_placer.packing
    now_s, start_s = snapshot.now_s, snapshot.jobs.start_s
    smoothed = [0.0] * len(packing)
    for device, rows in enumerate(packing.residents):
        if len(rows) > 1:
            since_s = max(float(start_s[row]) for row in rows)
            smoothed[device] = trigger.smoothed(packing.theta(device), now_s - since_s)
    return smoothed


def _where(gang_placer: GangPlacer, row: int, source: int, moved: set[int]) -> BoolColumn:
    """Devices that a worker may go to, by nodes and by who is on his way."""
    gpu_occupancy, placing = gang_placer.gpu_occupancy, gang_placer.placing
    home = int(gpu_occupancy.node[source])
    ok: BoolColumn = (gpu_occupancy.node == home) & ~gpu_occupancy.taken
    code = int(placing.demand.code[row])
    if gang_placer.snapshot.jobs.gpus[row] == 1:
        (piece,) = list_allocations(gang_placer.snapshot.jobs, row)
        now = placing.free_capacity.now
        free_capacity = gang_placer.nodes_of(code) & (now.cpus >= piece.cpus) & (now.memory_mib >= piece.memory_mib)
        ok |= free_capacity[gpu_occupancy.node] & ~gpu_occupancy.taken
    residents = gang_placer.packing.residents
    for other in moved:
        for device in gang_placer.packing.places.get(other, ()):
            ok[device] = False
    for device in np.flatnonzero(ok).tolist():
        if not gang_placer.demands.fit(row, residents[device]) or not _mechanism_allows(
            gang_placer, row, source, device
        ):
            ok[device] = False
    return ok


def _mechanism_allows(gang_placer: GangPlacer, row: int, source: int, target: int) -> bool:
    """Whether the mechanism can give the job all devices that it would have after the move."""
    guest_rules, jobs_on = gang_placer.gpu_occupancy.guest_rules, gang_placer.gpu_occupancy.jobs_on
    if not guest_rules.limited:
        return True
    if not guest_rules.mechanism.starts_together:
        return not guest_rules.refuse_device(row, target, jobs_on[target], later=True)
    devices = sorted({*gang_placer.packing.places[row], target} - {source})
    return not guest_rules.refuse(row, devices, lambda device: [one for one in jobs_on[device] if one != row])


def _carry_out(gang_placer: GangPlacer, one: WorkerMove) -> None:
    """Tell nodes and devices; nobody else gets a device of a job on its way."""
    gpu_occupancy, jobs = gang_placer.gpu_occupancy, gang_placer.snapshot.jobs
    row, home, node = one.job, int(gpu_occupancy.node[one.source]), int(gpu_occupancy.node[one.target])
    gang_placer.placing.verdict[row] = JobVerdict.PREEMPT
    gpu_occupancy.guest_rules.depart(row)
    before = list_allocations(jobs, row)
    pieces = before if home == node else [before[0]._replace(node=node)]
    extra = pieces[0] if home != node else NodeAllocation(node, 1, 0, 0)
    gang_placer.placing.free_capacity.hold(gpu_occupancy.take([one.target], [extra._replace(gpus=1)]))
    gpu_occupancy.jobs_on[one.source].remove(row)
    devices = tuple(sorted(gang_placer.packing.places[row]))
    gpu_occupancy.taken[[one.source, *devices]] = True
    if not gpu_occupancy.guest_rules.mechanism.starts_together:
        return
    gpu_occupancy.guest_rules.arrive(
        row, devices, lambda device: [at for at in gpu_occupancy.jobs_on[device] if at != row]
    )
    gang_placer.placing.record(row, JobPlacement(list(pieces), at_once=True))
    gang_placer.devices[row] = devices


def _preempt(gang_placer: GangPlacer, one: WorkerMove, smoothed: Sequence[float]) -> PreemptJob:
    jobs = gang_placer.snapshot.jobs
    reason = (
        f"moves from GPU {one.source} to GPU {one.target}: interference there averages {smoothed[one.source]:.2f}, allowed "
        f"{gang_placer.rules.interference:.2f}"
    )
    return PreemptJob(int(jobs.job_id[one.job]), (), reason)

"""One decision of OJPP over a cluster: whole gangs onto the fewest GPUs that their nodes, bounds and owners allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.mechanism.guest_worth import GuestWorth
from slurm_soda.policies.sharing.ojpp.job_demands import JobDemands
from slurm_soda.policies.sharing.ojpp.packing import Packing, PackingRules
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, IntColumn

_TRIES = 4
_ROUNDING = 1e-9


class GangPlacer:
    """A walk in the making, and who is on which device by it.

    Attributes:
        devices: of every job that got a place, by row, in the order in which they got it.
        refused: of every job with GPUs that got none, how many had got one when the decision came to it, or to one alike.
    """

    def __init__(self, snapshot: SharingSnapshot, rules: PackingRules, caution: float, *, opportunistic: bool) -> None:
        self.snapshot, self.rules = snapshot, rules
        self.placing = PlacementPass(snapshot)
        self.gpu_occupancy = GpuOccupancy(snapshot, self.placing.free_capacity)
        self.interference_view = InterferenceView(snapshot, self.gpu_occupancy)
        self.guest_worth = GuestWorth(snapshot, self.gpu_occupancy, self.interference_view)
        self.demands = JobDemands(snapshot, self.interference_view, caution, opportunistic=opportunistic)
        self.packing = Packing(self.demands.jobs, self.demands.slowdown, len(self.gpu_occupancy.node), rules)
        places: dict[int, list[int]] = {}
        for device, rows in enumerate(self.gpu_occupancy.jobs_on):
            for row in rows:
                places.setdefault(row, []).append(device)
        self.packing.fill(places)
        self.devices: dict[int, tuple[int, ...]] = {}
        self.refused: dict[int, int] = {}
        self._masks: dict[int, BoolColumn] = {}
        self._refused: dict[tuple[object, ...], int] = {}
        self._kind_of = _alike(self.demands)

    def nodes_of(self, code: int) -> BoolColumn:
        """Nodes that a shape may use."""
        if code not in self._masks:
            self._masks[code] = self.gpu_occupancy.classes.mask(self.placing.demand.shapes[code])
        return self._masks[code]

    def place(self, ranked: IntColumn) -> None:
        """Give the jobs of an order their places, whole jobs one after the other; those that find none are passed.

        Complexity: O(devices) for each job, in columns, and O(models x jobs on the device) for each GPU given. Of jobs
        alike, only the first that is refused is looked at.
        """
        rows = self.placing.candidates(ranked)
        for row, code in zip(rows.tolist(), self.placing.demand.code[rows].tolist(), strict=True):
            key = (code, int(self._kind_of[row]), self.guest_worth.traits(row))
            shape = self.placing.demand.shapes[code]
            if key not in self._refused:
                if self._share(row, code, shape) or self._alone(row, shape):
                    continue
                self._refused[key] = len(self.devices)
            if shape.wants_gpus:
                self.refused[row] = self._refused[key]

    def _share(self, row: int, code: int, shape: RequestShape) -> bool:
        """Active devices if all workers find one there; else also new ones, on which a worker is not slowed at all."""
        if not shape.wants_gpus or self.demands.never_shares[row]:
            return False
        packing, gpu_occupancy = self.packing, self.gpu_occupancy
        gpus = int(self.snapshot.jobs.gpus[row])
        ok = packing.open_to(row) & packing.active & ~gpu_occupancy.taken & self.nodes_of(code)[gpu_occupancy.node]
        for fresh in (False, True):
            low, high = 0.0, (self.rules.balance if fresh and gpus > 1 else np.inf)
            for _ in range(_TRIES):
                candidates = self._ranked(row, ok, low, high)
                if not len(candidates) or (not fresh and len(candidates) < gpus):
                    break
                picked = gpu_occupancy.pick(row, shape, self._fitting(row, candidates, code, fresh))
                if picked is None:
                    break
                problem = self._join(row, *picked)
                if problem is None:
                    return True
                if problem >= 0:
                    ok[problem] = False
                else:  # out of balance: from the calmest device on
                    least = float(packing.slowdowns_if_joined(row)[picked[0]].min())
                    low, high = least, min(high, least + self.rules.balance)
            if gpus == 1:
                break
        return False

    def _ranked(self, row: int, ok: BoolColumn, low: float, high: float) -> IntColumn:
        own = self.packing.slowdowns_if_joined(row)
        found = np.flatnonzero(ok & (own >= low - _ROUNDING) & (own <= high + _ROUNDING))
        free_capacity = self.packing.capacity_after(row)[found]
        keys = (
            (found, free_capacity, np.round(self.packing.after(row)[found], 12))
            if self.rules.least_slowdown_first
            else (found, free_capacity)
        )
        return found[np.lexsort(keys)]

    def _fitting(self, row: int, candidates: IntColumn, code: int, fresh: bool) -> Iterator[int]:
        for device in candidates.tolist():
            there = self.gpu_occupancy.jobs_on[device]
            if self.demands.fit(row, self.packing.residents[device]) and not self.guest_worth.refuse(
                row, device, there
            ):
                yield device
        if fresh:
            yield from self.gpu_occupancy.free(self.nodes_of(code))

    def _join(self, row: int, devices: Sequence[int], pieces: Sequence[NodeAllocation]) -> int | None:
        """None if all bounds hold with the job there; else a device where they do not, -1 for the job's own balance."""
        packing = self.packing
        problem: int | None = None
        for device in devices:
            if not packing.is_open_to(row, device):
                problem = device
                break
            packing.join(row, device)
        if problem is None and packing.spread(row) > self.rules.balance + _ROUNDING:
            problem = -1
        if problem is not None:
            for device in list(packing.places.get(row, ())):
                packing.leave(row, device)
            return problem
        self.placing.free_capacity.hold(self.gpu_occupancy.take(devices, pieces))
        self._record(row, tuple(devices), pieces)
        return None

    def _alone(self, row: int, shape: RequestShape) -> bool:
        pieces = self.placing.free_capacity.now.find(shape)
        if pieces is None:
            return False
        self.placing.free_capacity.hold(JobPlacement(pieces, at_once=True))
        devices = self.gpu_occupancy.take_empty(pieces)
        for device in devices:
            self.packing.join(row, device)
        self._record(row, devices, pieces)
        return True

    def _record(self, row: int, devices: tuple[int, ...], pieces: Sequence[NodeAllocation]) -> None:
        self.placing.record(row, JobPlacement(list(pieces), at_once=True))
        if devices:
            self.gpu_occupancy.settle(row, devices)
            self.devices[row] = tuple(sorted(devices))


def _alike(demands: JobDemands) -> IntColumn:
    """A number for each job, the same for those that OJPP cannot tell apart."""
    jobs = demands.jobs
    columns = np.column_stack((jobs.model, jobs.bound, jobs.workers))
    _, number = np.unique(columns, axis=0, return_inverse=True)
    column: IntColumn = number.reshape(-1).astype(np.int64)
    return column

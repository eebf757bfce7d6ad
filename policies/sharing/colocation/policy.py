"""Co-location as a policy: least occupancy onto least summed occupancy (Tabrizian 2020, Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.arithmetic.sharing_decision import BOUND_CAUTION
from slurm_soda.policies.sharing.co_runners.lookup import CoRunnersLookup
from slurm_soda.policies.sharing.colocation.constraints import ColocationConstraints
from slurm_soda.policies.sharing.colocation.reasons import ColocationCriteria, ColocationReasons
from slurm_soda.policies.sharing.colocation.speedup_models import (
    GpuLoad,
    LinearSpeedup,
    LoadSample,
    OccupancyThreshold,
    SpeedupModel,
    fit_speedup,
    fit_threshold,
)
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.mechanism.guest_worth import GuestWorth
from slurm_soda.policies.sharing.plan import SharingPlan, make_sharing_plan, mark_unshared
from slurm_soda.policies.sharing.snapshot import KindEstimates, SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn

MAX_JOBS_PER_GPU = 3
SPEEDUP_MODELS = ("threshold", "linear")
_ONE_GPU = OccupancyThreshold(1.0)
"""Where too few pairs are known for a fit: jobs together ask for no more than one GPU."""


@dataclass(frozen=True, slots=True)
class Colocation:
    """Least occupancy first, onto the GPUs of least summed occupancy, free ones first; nobody is preempted.

    Occupancy is that of a second of running alone, C over the iteration time, so that it does not hang on how long an
    iteration is. Jobs whose occupancy nobody knows get GPUs of their own, after the others. On a snapshot that does not know
    single GPUs it is ``fifo-skip``, and says so in its facts (``sharing_known`` is 0).

    Attributes:
        jobs_per_gpu: most jobs on one GPU.
        mps: kernels of several jobs run at once; without it they take turns, and busy time counts instead of occupancy.
        speedup_model: one of :data:`SPEEDUP_MODELS`.
        limit: most summed occupancy; None: fitted.
        bound_caution: against owners' bounds, slowdowns count as so many of their expected errors worse than known.
    """

    jobs_per_gpu: int = MAX_JOBS_PER_GPU
    mps: bool = True
    speedup_model: str = SPEEDUP_MODELS[0]
    limit: float | None = None
    bound_caution: float = BOUND_CAUTION

    @property
    def name(self) -> str:
        return "colocation"

    @property
    def starts_only(self) -> Literal[True]:
        """It preempts nobody."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs, then O(GPUs log GPUs) for each job put beside others and for each request of one kind that
        finds no room.
        """
        if not isinstance(snapshot, SharingSnapshot):
            return mark_unshared(Fifo(skip=True).decide(snapshot), self.name)
        return _Pass(self, snapshot).run()


def estimate_load(known: KindEstimates, kind: JobKind, *, mps: bool) -> GpuLoad | None:
    """What a kind asks of a GPU in a second of running alone; None where nobody knows.

    From its profile, if there is one. Else from two of its like on one GPU: they ask for as many GPUs as either is slowed
    down, so each for half of that. A kind that two copies of do not slow each other counts as half a GPU, which is the most
    that it may be.
    """
    profile = known.profile(kind)
    if profile is not None and not mps and profile.utilisation_ratio is not None:
        return GpuLoad(profile.utilisation_ratio.value)
    throughput = known.throughput(kind)
    if profile is not None and profile.occupancy_s is not None and throughput is not None and mps and kind.batch:
        taken_s = throughput.iteration_s(kind.batch)
        bandwidth_s = profile.bandwidth_s.value if profile.bandwidth_s is not None else 0.0
        return GpuLoad(profile.occupancy_s.value / taken_s, bandwidth_s / taken_s) if taken_s > 0 else None
    if known.fits((kind, kind)) is not True:
        return None
    xi = known.xi(kind, (kind,))
    return None if xi is None else GpuLoad(max(xi.value, 1.0) / 2)


def collect_load_samples(known: KindEstimates, loads: Mapping[JobKind, GpuLoad]) -> list[LoadSample]:
    """Summed loads of all pairs that are known, with the speed-up for equal work: 2 over the larger slowdown."""
    found = []
    for one, other in combinations_with_replacement(loads, 2):
        if known.fits((one, other)) is True:
            slowed = known.xi(one, (other,)), known.xi(other, (one,))
            if slowed[0] is not None and slowed[1] is not None:
                worst = max(slowed[0].value, slowed[1].value, 1.0)
                found.append((loads[one].plus(loads[other]), 2.0 / worst))
    return found


def choose_speedup_model(policy: Colocation, samples: list[LoadSample]) -> SpeedupModel:
    """The limit as set, or what fits the samples best."""
    if policy.limit is not None:
        return OccupancyThreshold(policy.limit)
    if policy.speedup_model == "linear" and len(samples) >= 3:
        return fit_speedup(samples)
    return fit_threshold(samples) if len(samples) >= 2 else _ONE_GPU


class _Pass:
    """One decision."""

    def __init__(self, policy: Colocation, snapshot: SharingSnapshot) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._placing = PlacementPass(snapshot)
        self._gpu_occupancy = GpuOccupancy(snapshot, self._placing.free_capacity)
        self._interference_view = InterferenceView(snapshot, self._gpu_occupancy)
        self._constraints = ColocationConstraints(snapshot.known, self._interference_view, policy.bound_caution)
        self._guest_worth = GuestWorth(snapshot, self._gpu_occupancy, self._interference_view)
        known, sharing = snapshot.known, snapshot.sharing
        there = [sharing.kinds[number] for number in np.unique(sharing.kind[sharing.kind >= 0]).tolist()]
        loads = {kind: estimate_load(known, kind, mps=policy.mps) for kind in there}
        self._loads = {kind: load for kind, load in loads.items() if load is not None}
        self._speedup_model = choose_speedup_model(policy, collect_load_samples(known, self._loads))
        self._occupancy = np.array([self._own(row).occupancy_s for row in range(len(snapshot.jobs))])
        devices = len(self._gpu_occupancy.node)
        self._sum, self._bandwidth, self._count = (
            np.zeros(devices),
            np.zeros(devices),
            np.zeros(devices, dtype=np.int64),
        )
        for device, rows in enumerate(self._gpu_occupancy.jobs_on):
            for row in rows:
                self._settle(row, device)
        self._devices: dict[int, tuple[int, ...]] = {}
        self._beside: list[int] = []
        """Rows that were put beside others."""
        self._refused: dict[int, int] = {}
        """How many had places when a job with GPUs, by row, or one like it, found none."""
        self._masks: dict[int, BoolColumn] = {}

    def run(self) -> SharingPlan:
        """Walk the order."""
        jobs, placing = self._snapshot.jobs, self._placing
        ranked = rank_rows(jobs, find_rankable_rows(self._snapshot), self._occupancy, jobs.submit_s)
        rows = placing.candidates(ranked)
        refused: dict[tuple[object, ...], int] = {}
        for row, code in zip(rows.tolist(), placing.demand.code[rows].tolist(), strict=True):
            alone = math.isinf(self._occupancy[row])
            kind = None if alone else self._interference_view.kind(row)
            key = (code, float(self._snapshot.sharing.max_slowdown[row]), kind, self._guest_worth.traits(row))
            shape = placing.demand.shapes[code]
            if key not in refused:  # while jobs only come, nobody after it finds more room
                if self._alone(row, shape) if alone or not shape.wants_gpus else self._least(row, code, shape):
                    continue
                refused[key] = len(self._devices)
            if shape.wants_gpus:
                self._refused[row] = refused[key]
        return self._plan(ranked, self._occupancy)

    def _own(self, row: int) -> GpuLoad:
        """Infinite for a job that shares with nobody."""
        sharing = self._snapshot.sharing
        kind = self._interference_view.kind(row)
        load = self._loads.get(kind) if kind is not None and sharing.shares[row] else None
        return GpuLoad(math.inf, 0.0) if load is None else load

    def _settle(self, row: int, device: int) -> None:
        load = self._own(row)
        self._sum[device] += load.occupancy_s
        self._bandwidth[device] += load.bandwidth_s
        self._count[device] += 1

    def _least(self, row: int, code: int, shape: RequestShape) -> bool:
        """Free GPUs first, as they hold nothing; then those of least summed occupancy on which it is predicted to gain."""
        pieces = self._placing.free_capacity.now.find(shape)
        if pieces is not None:
            return self._alone(row, shape)
        gpu_occupancy = self._gpu_occupancy
        ok = self._mask(code) & ~gpu_occupancy.taken & (self._count < self._policy.jobs_per_gpu) & (self._count > 0)
        ok &= np.isfinite(self._sum) & self._gains(self._own(row))
        picked = gpu_occupancy.pick(row, shape, self._ranked(row, code, ok))
        if picked is None:
            return False
        devices, pieces = picked
        self._placing.free_capacity.hold(gpu_occupancy.take(devices, pieces))
        self._beside.append(row)
        self._record(row, tuple(devices), pieces)
        return True

    def _mask(self, code: int) -> BoolColumn:
        """Devices on nodes that a shape may use."""
        if code not in self._masks:
            self._masks[code] = self._gpu_occupancy.classes.mask(self._placing.demand.shapes[code])[
                self._gpu_occupancy.node
            ]
        return self._masks[code]

    def _gains(self, own: GpuLoad) -> BoolColumn:
        """Where the model predicts a speed-up."""
        together: FloatColumn = self._sum + own.occupancy_s
        if isinstance(self._speedup_model, OccupancyThreshold):
            return together <= self._speedup_model.most_occupancy_s
        if isinstance(self._speedup_model, LinearSpeedup):
            model = self._speedup_model
            with np.errstate(invalid="ignore"):
                delta = model.constant + model.by_occupancy * together
                return delta + model.by_bandwidth * (self._bandwidth + own.bandwidth_s) >= 1
        return np.array([self._speedup_model.predicted(GpuLoad(float(one))) >= 1 for one in together], dtype=np.bool_)

    def _ranked(self, row: int, code: int, ok: BoolColumn) -> Iterator[int]:
        """Free GPUs, then the others by summed occupancy."""
        yield from self._gpu_occupancy.free(self._gpu_occupancy.classes.mask(self._placing.demand.shapes[code]))
        devices = np.flatnonzero(ok)
        for device in devices[np.argsort(self._sum[devices], kind="stable")].tolist():
            there = self._gpu_occupancy.jobs_on[device]
            if self._constraints.allowed(row, there) and not self._guest_worth.refuse(row, device, there):
                yield device

    def _alone(self, row: int, shape: RequestShape) -> bool:
        pieces = self._placing.free_capacity.now.find(shape)
        if pieces is None:
            return False
        self._placing.free_capacity.hold(JobPlacement(pieces, at_once=True))
        self._record(row, self._gpu_occupancy.take_empty(pieces), pieces)
        return True

    def _record(self, row: int, devices: tuple[int, ...], pieces: Sequence[NodeAllocation]) -> None:
        self._placing.record(row, JobPlacement(list(pieces), at_once=True))
        if devices:
            self._gpu_occupancy.settle(row, devices)
            self._devices[row] = tuple(sorted(devices))
            for device in devices:
                self._settle(row, device)

    def _plan(self, ranked: IntColumn, score: FloatColumn) -> SharingPlan:
        # Where nobody may join those who only start now, those who wait may as soon as they run.
        soon = not self._snapshot.mechanism.starts_together and self._devices and self._refused
        plan = build_plan(
            self._placing,
            self._policy.name,
            ranked,
            score=score,
            score_name="occupancy",
            next_event_s=self._snapshot.now_s if soon else math.inf,
        )
        facts = {"gpus_active": float(np.count_nonzero(self._count))}
        if isinstance(self._speedup_model, OccupancyThreshold):
            facts["occupancy_limit"] = self._speedup_model.most_occupancy_s
        made = make_sharing_plan(plan, self._snapshot.jobs.job_id, self._devices, facts)
        return replace(made, decisions=self._reasons().reports())

    def _reasons(self) -> ColocationReasons:
        gpu_occupancy, code = self._gpu_occupancy, self._placing.demand.code
        lookup = CoRunnersLookup(self._snapshot, self._interference_view, gpu_occupancy.jobs_on, self._devices)
        criteria = ColocationCriteria(
            self._speedup_model,
            self._policy.jobs_per_gpu,
            self._own,
            self._constraints.allowed,
            self._constraints.worst,
            self._guest_worth.refuse,
            lambda row: np.flatnonzero(self._mask(int(code[row])) & ~gpu_occupancy.taken),
        )
        return ColocationReasons(lookup, criteria, self._beside, self._refused)

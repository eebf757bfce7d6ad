"""Who says how many instances each service has: slurm-soda's own stage, or a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from slurm_soda.policies.pipeline.actions import DrainInstance, ScaleService
from slurm_soda.policies.pipeline.stages import empty_plan
from slurm_soda.policies.services.place_services import PlaceServices, renew_low_since
from slurm_soda.policies.services.service import Device, InstanceState, ServiceTable
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn
from slurm_soda.simulator.services.service_set import ServingRules, gpu_capacity_qps
from slurm_soda.simulator.services.serving_recorder import packed_gpus
from slurm_soda.simulator.services.tasks import ServiceTask

SERVICES_PER_GPU = 4
"""ABACUS puts three to four services on one GPU (paper 004, Section V-D); the baseline gets the better of the two."""
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Placing:
    """What shall be from now on."""

    wanted: dict[tuple[int, Device], int]
    """Instances that shall run, by service and device; of a pair that is not there as many as do."""
    gpu_type: dict[int, str] = field(default_factory=dict)
    """On which GPU type a service's new instances shall run; empty: any."""
    drains: tuple[int, ...] = ()
    """Jobs of instances that leave."""
    preempts: tuple[int, ...] = ()
    """Jobs that give way."""
    again_s: float = float("inf")
    """When this may change although neither load nor instances do."""


class Placer(Protocol):
    """Asked each time that the load or an instance's state changed."""

    def place(self, snapshot: ClusterSnapshot, tasks: Sequence[ServiceTask]) -> Placing:
        """What shall be, seen the cluster as it is and all tasks."""
        ...


class StagePlacer:
    """slurm-soda's stage, as sodad asks it each cycle, on what a router would report."""

    def __init__(self, rules: ServingRules, nodes: int, min_run_s: float = 0.0) -> None:
        """``min_run_s`` is that of :class:`.PlaceServices`."""
        self._rules, self._nodes = rules, nodes
        self._low_since_s: FloatColumn = np.full(len(rules.services.services), np.nan)
        self._stage = PlaceServices(min_run_s)

    def place(self, snapshot: ClusterSnapshot, tasks: Sequence[ServiceTask]) -> Placing:
        seen = replace(snapshot, services=self._table(snapshot, tasks))
        none = empty_plan()
        plan = self._stage.apply(seen, none)
        self._low_since_s = renew_low_since(seen, none)
        row = {service.name: at for at, service in enumerate(self._rules.services.services)}
        scalings = [one for one in plan.actions if isinstance(one, ScaleService)]
        return Placing(
            wanted={(row[one.service], one.device): one.instances for one in scalings},
            gpu_type={row[one.service]: one.gpu_type for one in scalings if one.device is Device.GPU},
            drains=tuple(one.job_id for one in plan.actions if isinstance(one, DrainInstance)),
            preempts=tuple(one.job_id for one in plan.preempts),
            again_s=plan.next_event_s,
        )

    def _table(self, snapshot: ClusterSnapshot, tasks: Sequence[ServiceTask]) -> ServiceTable:
        services, now_s = self._rules.services, snapshot.now_s
        count, settings = len(services.services), self._rules.settings
        runs = [task for task in tasks if task.state is not None]
        waits = [task for task in tasks if task.state is None]
        waiting = np.zeros((count, len(Device)), dtype=np.int64)
        for task in waits:
            waiting[task.service, task.device] += 1
        day_ago_s = now_s - _DAY_S
        known = day_ago_s >= 0
        forecast = services.load.most_within(day_ago_s, day_ago_s + settings.horizon_s) if known else None
        return ServiceTable(
            services=services.services,
            load_qps=services.load.at(now_s),
            forecast_qps=np.full(count, np.nan) if forecast is None else forecast,
            low_since_s=self._low_since_s,
            waiting=waiting,
            job_id=_whole([task.job_id for task in runs]),
            service=_whole([task.service for task in runs]),
            device=_whole([task.device for task in runs]),
            state=_whole([InstanceState.READY if task.state is None else task.state for task in runs]),
            since_s=np.array([task.since_s for task in runs], dtype=np.float64),
            task_id=_whole([task.job_id for task in waits]),
            task_service=_whole([task.service for task in waits]),
            task_device=_whole([task.device for task in waits]),
            free_bandwidth_gb_s=self.free_bandwidth_gb_s(tasks),
            settings=settings,
        )

    def free_bandwidth_gb_s(self, tasks: Sequence[ServiceTask]) -> FloatColumn:
        """Memory bandwidth that instances leave on each node; empty where nobody knows what nodes have."""
        return free_bandwidth_gb_s(self._rules, self._nodes, tasks)


def free_bandwidth_gb_s(rules: ServingRules, nodes: int, tasks: Sequence[ServiceTask]) -> FloatColumn:
    """See :meth:`StagePlacer.free_bandwidth_gb_s`."""
    whole = rules.services.node_bandwidth_gb_s
    if np.isnan(whole):
        return np.zeros(0)
    free = np.full(nodes, whole)
    for task in tasks:
        profile = rules.services.services[task.service].cpu
        if task.state is not None and task.device is Device.CPU and task.job is not None and profile is not None:
            for piece in task.job.pieces:
                free[piece.node] -= profile.bandwidth_with(task.cores)
    return free


class PeakPlacer:
    """As many GPU instances as the peak needs, always (the baselines of SODA, Sections III-B and VI-E)."""

    def __init__(self, rules: ServingRules) -> None:
        self._wanted = {(at, Device.GPU): size for at, size in enumerate(rules.peak_instances())}

    def place(self, snapshot: ClusterSnapshot, tasks: Sequence[ServiceTask]) -> Placing:
        del snapshot, tasks
        return Placing(dict(self._wanted))


class PackedPlacer:
    """Services share GPUs, and none is slowed down by it: what ABACUS' co-location frees at best."""

    def __init__(self, rules: ServingRules) -> None:
        self._rules = rules
        self._capacity = np.array([gpu_capacity_qps(service) for service in rules.services.services])

    def place(self, snapshot: ClusterSnapshot, tasks: Sequence[ServiceTask]) -> Placing:
        load, now_s = self._rules.services.load, snapshot.now_s
        soon = load.most_within(now_s, now_s + load.step_s + self._rules.start_s)
        wanted = packed_gpus((soon / self._capacity).tolist(), self._rules.settings.headroom, SERVICES_PER_GPU)
        runs = [task.job_id for task in tasks if task.state is not None]
        return Placing({(0, Device.GPU): wanted}, drains=tuple(runs[wanted:]))


def _whole(values: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)

"""One service at a time, as its placement sees it: its load, its instances and what each of them can answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.services.service import Device, InstanceState, Service, ServiceTable
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot import ClusterSnapshot

USABLE = (InstanceState.READY, InstanceState.STARTING)
"""States of instances that answer, or will."""


class Instance(NamedTuple):
    """A task that runs."""

    job_id: int
    device: Device
    state: InstanceState
    since_s: float
    capacity_qps: float
    """0 where it was not profiled on what it runs on."""
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A row of a :class:`.ServiceTable`."""

    row: int
    service: Service
    seen_qps: float
    forecast_qps: float
    low_since_s: float
    waiting: tuple[int, int]
    """Tasks that wait, by :class:`.Device`."""
    instances: tuple[Instance, ...]
    """The oldest job first."""
    cpu_qps: float
    """What an instance on CPU cores answers; 0: not profiled there, or not within the target."""
    gpu_qps: float
    """What an instance answers on the slowest GPU type; 0: not profiled there, or not within the target."""
    settings: ServiceSettings
    usable_instances: tuple[int, int]
    """Instances that answer, or will, by :class:`.Device`."""
    failures: tuple[int, int] = (0, 0)
    """Instances that failed since one was ready, by :class:`.Device`."""
    by_owner: tuple[int, int] = (0, 0)
    """Waiting tasks that start by their owner's own word, by :class:`.Device`."""

    @property
    def load_qps(self) -> float:
        """Queries in a second that the next minutes may bring; NaN where no router reports."""
        return self.seen_qps if math.isnan(self.forecast_qps) else max(self.seen_qps, self.forecast_qps)

    @property
    def profiled(self) -> bool:
        """Whether it is known what an instance answers on any device."""
        return bool(self.cpu_qps or self.gpu_qps)

    def capacity_of(self, device: Device) -> float:
        """What a new instance answers at least."""
        return self.cpu_qps if device is Device.CPU else self.gpu_qps

    def on(self, device: Device, *states: InstanceState) -> list[Instance]:
        """Instances of a device in these states."""
        return [one for one in self.instances if one.device is device and one.state in states]

    def usable(self, device: Device) -> int:
        """Instances of a device that answer, or will."""
        return self.usable_instances[device]

    def tasks(self, device: Device) -> int:
        """As many may run on a device."""
        return self.usable(device) + self.waiting[device]

    def failing(self, device: Device) -> bool:
        """Whether instances of a device fail and none answers."""
        return bool(self.on(device, InstanceState.FAILED)) and not self.on(device, InstanceState.READY)

    def cooled(self, now_s: float) -> bool:
        """Whether fewer instances would have done for the whole cool-down."""
        return now_s - self.low_since_s >= self.settings.cool_down_s  # false where it is not known

    def kept_first(self, device: Device) -> list[Instance]:
        """Usable instances of a device, those that stay longest first: ready ones before others, the faster, the older."""
        usable = self.on(device, *USABLE)
        return sorted(usable, key=lambda one: (one.state is not InstanceState.READY, -one.capacity_qps, one.job_id))


def ready_qps(instances: Iterable[Instance]) -> float:
    """What the ready ones of some instances answer."""
    return sum(one.capacity_qps for one in instances if one.state is InstanceState.READY)


def _by_device(column: list[list[int]], row: int) -> tuple[int, int]:
    """A service's values of a column that may be left empty."""
    return (column[row][0], column[row][1]) if column else (0, 0)


def service_states(snapshot: ClusterSnapshot) -> Iterator[ServiceState]:
    """Each service of a snapshot, in its order; O(services + instances log instances)."""
    table = snapshot.services
    order = np.argsort(table.service, kind="stable")
    ends = np.searchsorted(table.service[order], np.arange(len(table.services) + 1)).tolist()
    order_list, types = order.tolist(), _gpu_types(snapshot)
    rows = (table.job_id.tolist(), table.device.tolist(), table.state.tolist(), table.since_s.tolist())
    limit_s, failures, by_owner = table.settings.start_limit_s, table.failures.tolist(), table.by_owner.tolist()
    columns = (table.load_qps.tolist(), table.forecast_qps.tolist(), table.low_since_s.tolist(), table.waiting.tolist())
    for row, (service, seen, forecast, low, waiting) in enumerate(zip(table.services, *columns, strict=True)):
        cpu_qps, by_type = _capacities(service)
        slowest = min(by_type.values(), default=0.0)
        instances, usable = [], [0, 0]
        for at in order_list[ends[row] : ends[row + 1]]:
            device = Device(rows[1][at])
            state, since_s = InstanceState(rows[2][at]), rows[3][at]
            if state is InstanceState.STARTING and snapshot.now_s - since_s >= limit_s:
                state, since_s = InstanceState.FAILED, since_s + limit_s
            capacity = cpu_qps if device is Device.CPU else by_type.get(types[at], slowest)
            usable[device] += state in USABLE
            instances.append(Instance(rows[0][at], device, state, since_s, capacity, types[at]))
        yield ServiceState(
            row, service, seen, forecast, low, (waiting[0], waiting[1]), tuple(instances), cpu_qps, slowest,
            table.settings, (usable[0], usable[1]), _by_device(failures, row), _by_device(by_owner, row),
        )  # fmt: skip


def _capacities(service: Service) -> tuple[float, dict[str, float]]:
    """What an instance answers on the CPU, 0 for none, and by GPU type, as far as the target holds there."""
    cpu, bounds = service.cpu, (service.target_ms, service.window_ms)
    on_cpu = cpu.capacity_qps if cpu is not None and cpu.within(*bounds) else 0.0
    return on_cpu, {one.gpu_type: one.capacity_qps for one in service.gpu if one.within(*bounds)}


def _gpu_types(snapshot: ClusterSnapshot) -> list[str]:
    """The type of the GPU that each instance runs on; empty: none, or not known."""
    table, jobs, nodes = snapshot.services, snapshot.jobs, snapshot.nodes
    if not len(jobs) or not len(nodes):
        return [""] * len(table.job_id)
    row = np.minimum(np.searchsorted(jobs.job_id, table.job_id), len(jobs) - 1)
    first = jobs.alloc_start[row]
    known = (jobs.job_id[row] == table.job_id) & (jobs.alloc_start[row + 1] > first) & (table.device == Device.GPU)
    code = np.full(len(row), -1, dtype=np.int64)
    code[known] = nodes.gpu_type[jobs.alloc_node[first[known]]]
    return [nodes.gpu_types[one] if one >= 0 else "" for one in code.tolist()]


def own_jobs(table: ServiceTable) -> set[int]:
    """Jobs that are tasks of services."""
    return {*table.job_id.tolist(), *table.task_id.tolist()}

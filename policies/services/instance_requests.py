"""What tasks of services ask Slurm for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.services.service import Device, Service
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, JobState, JobTable, NodeTable


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """What one task asks for."""

    cores: int
    gpus: int
    memory_mib: int = 0
    gpu_type: str = ""
    """Empty: any."""
    node_set: int = -1
    """Column of :attr:`.NodeTable.node_sets` to which it is bound; -1: to none."""
    may_start: bool = False
    """Such a task waits for places alone already."""


def shown_requests(snapshot: ClusterSnapshot) -> Mapping[tuple[int, Device], tuple[InstanceRequest, ...]]:
    """What the tasks of each service ask for that Slurm shows, by row and device: one for each GPU type, of waiting tasks if
    there are any, those that may start before others.
    """
    table, jobs = snapshot.services, snapshot.jobs
    found: dict[tuple[int, Device], dict[int, InstanceRequest]] = {}
    if not len(jobs):
        return {}
    columns = ((table.task_id, table.task_service, table.task_device), (table.job_id, table.service, table.device))
    for ids, services, devices in columns:
        row = np.minimum(np.searchsorted(jobs.job_id, ids), len(jobs) - 1)
        known = np.flatnonzero(jobs.job_id[row] == ids)
        known = known[np.argsort(jobs.state[row[known]] != JobState.PENDING, kind="stable")]
        before = set(found)
        for service, on, at in zip(services[known].tolist(), devices[known].tolist(), row[known].tolist(), strict=True):
            key = service, Device(on)
            code = int(jobs.gpu_type[at])
            if key not in before and code not in found.get(key, ()):
                found.setdefault(key, {})[code] = _asked(jobs, at, key[1])
    return {key: tuple(by_type.values()) for key, by_type in found.items()}


def profiled_request(service: Service, device: Device) -> InstanceRequest:
    """What a task asks for by the service's profile."""
    profiles = [service.cpu] if device is Device.CPU else list(service.gpu)
    cores = max((one.cores for one in profiles if one is not None), default=1)
    return InstanceRequest(max(cores, 1), 1 if device is Device.GPU else 0)


def nodes_with(nodes: NodeTable, flags: BoolColumn, request: InstanceRequest) -> BoolColumn:
    """Of some nodes those with what a request asks for."""
    if request.gpu_type in nodes.gpu_types:
        flags = flags & (nodes.gpu_type == nodes.gpu_types.index(request.gpu_type))
    if 0 <= request.node_set < nodes.node_sets.shape[1]:
        flags = flags & nodes.node_sets[:, request.node_set]
    return flags


def tasks_that_fit(snapshot: ClusterSnapshot, job_ids: Iterable[int]) -> set[int]:
    """Of some waiting tasks those for which a node has free what they ask for, each of them alone."""
    jobs, nodes, found = snapshot.jobs, snapshot.nodes, set[int]()
    for job_id in job_ids:
        row = int(np.searchsorted(jobs.job_id, job_id))
        if row < len(jobs) and jobs.job_id[row] == job_id:
            request = _asked(jobs, row, Device.GPU if jobs.gpus[row] else Device.CPU)
            room = nodes_with(nodes, nodes.usable & nodes.in_partition[:, jobs.partition[row]], request)
            room = room & (nodes.gpus_free >= request.gpus) & (nodes.cpus_free >= request.cores)
            if (room & (nodes.memory_free_mib >= request.memory_mib)).any():
                found.add(job_id)
    return found


def _asked(jobs: JobTable, row: int, device: Device) -> InstanceRequest:
    code, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
    return InstanceRequest(
        cores=max(int(jobs.cpus[row]), 1),
        gpus=max(gpus, 1) if device is Device.GPU else gpus,
        memory_mib=int(jobs.memory_mib[row]),
        gpu_type=jobs.gpu_types[code] if code >= 0 else "",
        node_set=int(jobs.node_set[row]) if len(jobs.node_set) else -1,
        may_start=bool(jobs.state[row] == JobState.PENDING),
    )

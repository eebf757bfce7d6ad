"""Tasks of services' job arrays: rows before the jobs of a workload, and where each of them is in its life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurm_soda.policies.services.service import Device, InstanceState, Service
from slurm_soda.policies.session.ranking import SessionJob
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.model_core_curves import INFERENCE
from slurm_soda.simulator.services.service_set import PACKED, PEAK, ServingRules, cores_of
from slurm_soda.simulator.workload import Workload

_TIME_LIMIT_S = 366 * 86_400.0
"""No limit ends a job here; policies plan with a finite one."""


@dataclass(slots=True)
class ServiceTask:
    """One task of an array. It is requeued when its instance leaves, and may run again."""

    row: int
    service: int
    """Row of the service set; 0 where services share GPUs."""
    device: Device
    cores: int
    partition: int
    """Index into the cluster's partitions."""
    job: SessionJob | None = None
    """The loop's record, once the task was submitted."""
    state: InstanceState | None = None
    """None: it waits."""
    since_s: float = float("nan")
    executed_s: float = 0.0
    """How long its instances ran, those that have left."""

    @property
    def job_id(self) -> int:
        """Its job's id."""
        return self.row + 1


def make_tasks(rules: ServingRules, cluster: SimulatedCluster) -> list[ServiceTask]:
    """The tasks that owners submitted, by service, CPU before GPU.

    Raises:
        SimulatorError: a service names a partition that the cluster lacks.
    """
    services = rules.services.services
    if rules.mode == PACKED:
        wanted = [(0, Device.GPU, sum(rules.peak_instances()))]
        shown: Sequence[Service] = services[:1]
    else:
        sizes = rules.peak_instances() if rules.mode == PEAK else [service.most for service in services]
        wanted = [
            (at, device, size)
            for at, (service, size) in enumerate(zip(services, sizes, strict=True))
            for device, there in ((Device.CPU, service.cpu is not None), (Device.GPU, bool(service.gpu)))
            if there and (rules.mode != PEAK or device is Device.GPU)
        ]
        shown = services
    tasks: list[ServiceTask] = []
    for at, device, size in wanted:
        partition = _partition(shown[at], device, cluster)
        cores = max(cores_of(one, device) for one in (services if rules.mode == PACKED else (shown[at],)))
        tasks += [ServiceTask(len(tasks) + number, at, device, cores, partition) for number in range(size)]
    return tasks


def _partition(service: Service, device: Device, cluster: SimulatedCluster) -> int:
    name = service.cpu_partition if device is Device.CPU else service.gpu_partition
    if not name:
        return 0
    if name not in cluster.partitions:
        raise SimulatorError(
            f"service {service.name}: there is no partition {name!r}; known are {', '.join(cluster.partitions)}"
        )
    return cluster.partitions.index(name)


def with_tasks(
    workload: Workload, tasks: Sequence[ServiceTask], rules: ServingRules, cluster: SimulatedCluster
) -> Workload:
    """The workload with the tasks before its jobs; they were submitted with the first one, and have no end of their own."""
    services = rules.services.services
    first_s = float(workload.submit_s.min(initial=np.inf))
    rows: list[dict[str, Any]] = [
        {
            "label": f"{services[task.service].name}_{task.device.name.lower()}_{number}",
            "submit_s": first_s if np.isfinite(first_s) else 0.0,
            "run_s": np.inf,
            "time_limit_s": _TIME_LIMIT_S,
            "gpus": int(task.device is Device.GPU),
            "cpus": task.cores,
            "user": services[task.service].owner,
            "partition": cluster.partitions[task.partition],
            "category": INFERENCE,
            "preemptible": False,
            "shares": False,
        }
        for number, task in enumerate(tasks)
    ]
    return _joined(Workload.build("services", rows), workload)


def _joined(tasks: Workload, jobs: Workload) -> Workload:
    """Both, with one list of names of each kind."""
    columns: dict[str, Any] = {}
    names: dict[str, tuple[str, ...]] = {}
    coded = (
        ("user", "users"), ("partition", "partitions"), ("gpu_type", "gpu_types"), ("model", "models"),
        ("category", "categories"), ("qos", "qos_names"),
    )  # fmt: skip
    for column, plural in coded:
        known = list(getattr(jobs, plural))
        number = []
        for name in getattr(tasks, plural):
            if name not in known:
                known.append(name)
            number.append(known.index(name))
        codes = getattr(tasks, column)
        translated = np.array([*number, -1], dtype=np.int64)[codes]
        columns[column], names[plural] = np.concatenate((translated, getattr(jobs, column))), tuple(known)
    for name in Workload.__dataclass_fields__:
        value = getattr(jobs, name)
        if isinstance(value, np.ndarray) and name not in columns:
            columns[name] = np.concatenate((getattr(tasks, name), value))
    return jobs.with_columns(label=(*tasks.label, *jobs.label), **columns, **names)

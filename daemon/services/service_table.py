"""What a decision knows of services: their owners' limits and profiles, by their routers, and their tasks, by Slurm."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.service_tasks import NO_TASKS, ServiceTasks, device_of
from slurm_soda.daemon.settings.services import EVERYWHERE, ServicesSettings
from slurm_soda.policies.services.service import Device, DeviceProfile, InstanceState, IntColumn, Service, ServiceTable
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.wire.services.router_report import ReportedInstance
from slurm_soda.wire.services.service_profile import ProfiledDevice

_NAN = float("nan")
_STATES = {
    "starting": InstanceState.STARTING,
    "ready": InstanceState.READY,
    "draining": InstanceState.DRAINING,
    "failed": InstanceState.FAILED,
}
CLOCKS_DIFFER_S = 30.0
"""By so much a node's clock may be behind the controller's."""


def build_service_table(
    known: Sequence[KnownService],
    tasks: Mapping[ServiceKey, ServiceTasks],
    *,
    steady_s: float,
    settings: ServicesSettings,
    low_since_s: Mapping[ServiceKey, float],
    forecast_qps: Mapping[ServiceKey, float],
    draining: Collection[int],
) -> ServiceTable:
    """The services that are known, with the tasks of each.

    A task that runs and of which no router tells is starting; of what routers tell, only their owners' own tasks count.

    Args:
        known: as their routers reported them.
        tasks: by Slurm.
        steady_s: now.
        settings: of the site.
        low_since_s: since when fewer instances would have done, where that is so.
        forecast_qps: load that is expected, where something is.
        draining: instances that leave, whatever their routers say.
    """
    rows: list[tuple[int, int, Device, InstanceState, float]] = []
    waiting: list[tuple[int, int, Device]] = []
    for row, one in enumerate(known):
        own, reported = tasks.get(one.key, NO_TASKS), reported_instances(one)
        for job in own.running:
            state, since_s = instance_state(job, reported.get(job.job_id), draining)
            rows.append((job.job_id, row, device_of(job), state, since_s))
        for device in Device:
            waiting += [(record.job.job_id, row, device) for record in own.waiting[device] if _counts(record.standing)]
    rows.sort()
    waiting.sort()
    silent = [steady_s - one.reported_steady_s > settings.silent_after_s for one in known]
    loads = [_NAN if gone else one.load_qps for one, gone in zip(known, silent, strict=True)]
    return ServiceTable(
        services=tuple(_service(one, tasks.get(one.key, NO_TASKS)) for one in known),
        load_qps=np.array(loads, dtype=np.float64),
        forecast_qps=np.array([forecast_qps.get(one.key, _NAN) for one in known], dtype=np.float64),
        low_since_s=np.array([low_since_s.get(one.key, _NAN) for one in known], dtype=np.float64),
        waiting=_by_device([tasks.get(one.key, NO_TASKS).count_waiting for one in known]),
        by_owner=_by_device([tasks.get(one.key, NO_TASKS).count_by_owner for one in known]),
        job_id=np.array([job_id for job_id, *_ in rows], dtype=np.int64),
        service=np.array([row for _, row, *_ in rows], dtype=np.int64),
        device=np.array([device for _, _, device, *_ in rows], dtype=np.int64),
        state=np.array([state for *_, state, _ in rows], dtype=np.int64),
        since_s=np.array([since_s for *_, since_s in rows], dtype=np.float64),
        task_id=np.array([job_id for job_id, *_ in waiting], dtype=np.int64),
        task_service=np.array([row for _, row, _ in waiting], dtype=np.int64),
        task_device=np.array([device for *_, device in waiting], dtype=np.int64),
        settings=placement_settings(settings),
    )


def reported_instances(known: KnownService) -> dict[int, ReportedInstance]:
    """What the router told of each instance; of several files of one job, which ran elsewhere before, by the newest."""
    return {one.job_id: one for one in sorted(known.report.instances, key=lambda one: one.since_s)}


def instance_state(
    job: SlurmJob, reported: ReportedInstance | None, draining: Collection[int]
) -> tuple[InstanceState, float]:
    """State of a task that runs, and since when. What was reported of a run before this one does not count."""
    if reported is None or reported.since_s < job.start_s - CLOCKS_DIFFER_S:
        state, since_s = InstanceState.STARTING, job.start_s
    else:
        state, since_s = _STATES[reported.state], reported.since_s
    return (InstanceState.DRAINING, since_s) if job.job_id in draining else (state, since_s)


def placement_settings(settings: ServicesSettings) -> ServiceSettings:
    """What the site set about the placement."""
    return ServiceSettings(
        headroom=settings.headroom,
        hysteresis=settings.hysteresis,
        cool_down_s=settings.cool_down_s,
        horizon_s=settings.horizon_s,
        retry_s=settings.retry_s,
        requeue_failed_s=settings.requeue_failed_s,
        min_run_s=settings.min_run_s,
        first_in=tuple(one for one in settings.first_in if one != EVERYWHERE),
        first_everywhere=EVERYWHERE in settings.first_in,
    )


def _by_device(counts: Sequence[Callable[[Device], int]]) -> IntColumn:
    return np.array([[count(device) for device in Device] for count in counts], dtype=np.int64).reshape(-1, len(Device))


def _counts(standing: str) -> bool:
    return standing != "owners"


def _service(known: KnownService, tasks: ServiceTasks) -> Service:
    file, limits = known.file, known.limits
    devices = known.report.profile.devices if known.report.profile is not None else ()
    cpu = [_profile(one) for one in devices if one.device == "cpu" and file.cpu is not None]
    gpu = [_profile(one) for one in devices if one.device == "gpu" and file.gpu is not None]
    return Service(
        owner=known.key.owner,
        name=known.key.name,
        target_ms=file.target_ms,
        window_ms=file.window_ms,
        least=limits.least,
        most=limits.most,
        cpu=cpu[0] if cpu else None,
        gpu=tuple(gpu),
        cpu_partition=tasks.partition_names(Device.CPU),
        gpu_partition=tasks.partition_names(Device.GPU),
    )


def _profile(one: ProfiledDevice) -> DeviceProfile:
    return DeviceProfile(
        device=Device.GPU if one.device == "gpu" else Device.CPU,
        batch=one.batch,
        batch_ms=one.batch_ms,
        error_ratio=one.error_ratio,
        cores=one.cores,
        gpu_type=one.gpu_type,
        bandwidth_gb_s=_NAN if one.bandwidth_gb_s is None else one.bandwidth_gb_s,
    )

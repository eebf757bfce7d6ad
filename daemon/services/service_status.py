"""What people are shown of services: what the last cycle saw and decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_soda.daemon.services.known_service import InstanceStatus, KnownService, ServiceStatus
from slurm_soda.daemon.services.service_table import instance_state, reported_instances
from slurm_soda.daemon.services.service_tasks import ServiceTasks, device_of
from slurm_soda.policies.services.service import Device


def service_document(known: KnownService, status: ServiceStatus) -> dict[str, Any]:
    """One service as ``GET /v1/services`` shows it."""
    report = known.report
    return {
        "owner": known.key.owner,
        "name": known.key.name,
        "target_ms": known.file.target_ms,
        "load_qps": report.load_qps,
        "forecast_qps": status.forecast_qps,
        "p50_ms": report.p50_ms,
        "p95_ms": report.p95_ms,
        "p99_ms": report.p99_ms,
        "queries": report.queries,
        "errors": report.errors,
        "violations": report.violations,
        "least": known.limits.least,
        "most": known.limits.most,
        "endpoint": report.endpoint,
        "wanted": _by_device(status.wanted),
        "waiting": _by_device(status.waiting),
        "reason": "; ".join(filter(None, (known.rival, status.reason))),
        "reported_at_s": known.reported_at_s,
        "instances": [_instance(one) for one in status.instances],
    }


def service_status(
    known: KnownService,
    tasks: ServiceTasks,
    *,
    draining: Mapping[int, str],
    wanted: Mapping[Device, int],
    reason: str,
    forecast_qps: float | None,
) -> ServiceStatus:
    """What a cycle saw and decided; ``draining`` are the instances that leave, each with the reason."""
    reported, instances = reported_instances(known), []
    for job in tasks.running:
        told = reported.get(job.job_id)
        state, since_s = instance_state(job, told, draining)
        why = draining.get(job.job_id) or ("" if told is None else told.reason)
        host = told.host if told is not None and told.host else job.node_names
        queries = 0 if told is None else told.queries
        device = device_of(job).name.lower()
        instances.append(InstanceStatus(job.job_id, device, state.name.lower(), host, since_s, queries, why))
    return ServiceStatus(
        forecast_qps=forecast_qps,
        wanted={device.name.lower(): count for device, count in wanted.items()},
        waiting={device.name.lower(): tasks.count_waiting(device) for device in Device},
        reason=reason,
        instances=tuple(instances),
        accounts=frozenset(tasks.accounts),
    )


def unseen_status(known: KnownService) -> ServiceStatus:
    """Of a service that no cycle has looked at yet: what its router says."""
    found = [
        InstanceStatus(one.job_id, one.device, one.state, one.host, one.since_s, one.queries, one.reason)
        for one in known.report.instances
    ]
    return ServiceStatus(reason="sodad has not decided yet", instances=tuple(found))


def _by_device(counts: Mapping[str, int]) -> dict[str, int]:
    return {device: counts.get(device, 0) for device in ("cpu", "gpu")}


def _instance(one: InstanceStatus) -> dict[str, Any]:
    return {
        "job_id": one.job_id,
        "device": one.device,
        "state": one.state,
        "host": one.host,
        "since_s": one.since_s,
        "queries": one.queries,
        "reason": one.reason,
    }

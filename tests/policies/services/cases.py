"""Small worlds with services: one service, its instances and tasks, beside other jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slurm_soda.policies.pipeline.actions import DrainInstance, PreemptJob, ScaleService
from slurm_soda.policies.pipeline.stages import empty_plan
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.place_services import PlaceServices
from slurm_soda.policies.services.service import Device, DeviceProfile, InstanceState, Service, ServiceTable
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from tests.policies.cases import NOW_S, cluster

CPU = DeviceProfile(Device.CPU, batch=2, batch_ms=50.0, cores=4)
"""40 queries a second."""
GPU = DeviceProfile(Device.GPU, batch=20, batch_ms=50.0, cores=2)
"""400 queries a second: switching point 320."""
BOTH = Service("ann", "chat", least=1, most=20, cpu=CPU, gpu=(GPU,))
READY, STARTING, DRAINING, FAILED = (
    InstanceState.READY, InstanceState.STARTING, InstanceState.DRAINING, InstanceState.FAILED
)  # fmt: skip


def instances(
    device: Device, count: int, state: InstanceState = READY, since_s: float = NOW_S - 120.0
) -> list[tuple[Any, ...]]:
    return [(device, state, since_s)] * count


def table(
    service: Service,
    load_qps: float,
    running: Iterable[tuple[Any, ...]] = (),
    *,
    waiting: tuple[int, int] | None = None,
    low_since_s: float = float("nan"),
    forecast_qps: float = float("nan"),
    settings: ServiceSettings | None = None,
    first_id: int = 1001,
) -> ServiceTable:
    rows = list(running)
    tasks = waiting or (20 if service.cpu else 0, 20)
    return ServiceTable(
        services=(service,),
        load_qps=np.array([load_qps]),
        forecast_qps=np.array([forecast_qps]),
        low_since_s=np.array([low_since_s]),
        waiting=np.array([tasks], dtype=np.int64),
        job_id=np.arange(first_id, first_id + len(rows), dtype=np.int64),
        service=np.zeros(len(rows), dtype=np.int64),
        device=np.array([device for device, _, _ in rows], dtype=np.int64),
        state=np.array([state for _, state, _ in rows], dtype=np.int64),
        since_s=np.array([since_s for _, _, since_s in rows], dtype=np.float64),
        settings=settings or ServiceSettings(first_everywhere=True),
    )


def joined(*tables: ServiceTable) -> ServiceTable:
    """Several services, none of which has instances, with a name each."""
    names = [replace(one.services[0], name=f"service{at}") for at, one in enumerate(tables)]
    columns = {
        name: np.concatenate([getattr(one, name) for one in tables])
        for name in ("load_qps", "forecast_qps", "low_since_s", "waiting")
    }
    return replace(tables[0], services=tuple(names), **columns)


def world(
    services: ServiceTable, jobs: Sequence[dict[str, Any]] = (), nodes: NodeTable | None = None, now_s: float = NOW_S
) -> ClusterSnapshot:
    return replace(cluster(jobs, NodeTable.uniform(4, 4) if nodes is None else nodes, now_s), services=services)


def decided(snapshot: ClusterSnapshot) -> Plan:
    return PlaceServices().apply(snapshot, empty_plan())


def scaled(plan: Plan) -> dict[str, int]:
    """Instances by device."""
    return {one.device.name: one.instances for one in plan.actions if isinstance(one, ScaleService)}


def drained(plan: Plan) -> list[int]:
    return [one.job_id for one in plan.actions if isinstance(one, DrainInstance)]


def first(plan: Plan) -> dict[str, bool]:
    return {one.device.name: one.first for one in plan.actions if isinstance(one, ScaleService)}


def given_way(plan: Plan) -> list[int]:
    return [one.job_id for one in plan.actions if isinstance(one, PreemptJob)]

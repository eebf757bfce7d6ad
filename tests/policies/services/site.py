"""A service over many cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurm_soda.policies.pipeline.actions import DrainInstance, ScaleService
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.instances import ServiceState, ready_qps, service_states
from slurm_soda.policies.services.place_services import renew_low_since
from slurm_soda.policies.services.service import Device, DeviceProfile, Service, ServiceTable
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from tests.policies.cases import NOW_S
from tests.policies.services.cases import READY, STARTING, decided, table, world


def state_of(snapshot: ClusterSnapshot) -> ServiceState:
    (state,) = service_states(snapshot)
    return state


@dataclass
class Site:
    """Slurm, router and sodad in one: what was decided is done, and an instance is ready one cycle after its start."""

    services: ServiceTable
    nodes: NodeTable = field(default_factory=lambda: NodeTable.uniform(8, 8, cpus=64))
    now_s: float = NOW_S
    next_id: int = 5000
    changes: int = 0

    def cycle(self, load_qps: float, jobs: Sequence[dict[str, Any]] = ()) -> Plan:
        self.now_s += 30.0
        self.services = replace(self.services, load_qps=np.array([load_qps]))
        snapshot = world(self.services, jobs, self.nodes, self.now_s)
        plan = decided(snapshot)
        low = renew_low_since(snapshot, plan)
        gone = {one.job_id for one in plan.actions if isinstance(one, DrainInstance)}
        rows = [
            (job, device, READY if state == STARTING else state)
            for job, device, state in zip(
                self.services.job_id.tolist(), self.services.device.tolist(), self.services.state.tolist(), strict=True
            )
            if job not in gone
        ]
        for one in plan.actions:
            if isinstance(one, ScaleService):
                more = one.instances - sum(device == one.device for _, device, _ in rows)
                assert more >= 0
                self.changes += more
                rows += [(self.next_id + at, int(one.device), STARTING) for at in range(more)]
                self.next_id += more
        self.changes += len(gone)
        count = [sum(device == each for _, device, _ in rows) for each in Device]
        self.services = replace(
            self.services,
            low_since_s=low,
            waiting=np.array([[20 - count[0], 20 - count[1]]]),
            job_id=np.array([row[0] for row in rows], dtype=np.int64),
            service=np.zeros(len(rows), dtype=np.int64),
            device=np.array([row[1] for row in rows], dtype=np.int64),
            state=np.array([row[2] for row in rows], dtype=np.int64),
            since_s=np.full(len(rows), self.now_s),
        )
        return plan

    def devices(self) -> list[int]:
        """Instances on CPU and GPU."""
        return [int((self.services.device == device).sum()) for device in Device]

    @property
    def ready_qps(self) -> float:
        return ready_qps(state_of(world(self.services, (), self.nodes, self.now_s)).instances)


def site_of(cpu_batch: int, gpu_batch: int, least: int, most: int) -> Site:
    service = Service(
        "ann", "chat", least=least, most=most,
        cpu=DeviceProfile(Device.CPU, cpu_batch, 50.0, cores=4), gpu=(DeviceProfile(Device.GPU, gpu_batch, 50.0, cores=2),),
    )  # fmt: skip
    return Site(table(service, 0.0, waiting=(20, 20)))

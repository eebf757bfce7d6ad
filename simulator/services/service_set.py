"""Services and their load, as a simulation has them, and how they are served."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slurm_soda.policies.services.service import Device, Service
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.services.load import LoadCurve

PLACED, PEAK, PACKED = "placed", "peak", "packed"
BY_SYSTEM = "by-system"
"""As the system does that is simulated; :data:`PLACED` where none is named, :data:`PEAK` under stock Slurm."""
SERVING_MODES = (PLACED, PEAK, PACKED)
"""``placed``: by slurm-soda's stage ``PlaceServices``; ``peak``: GPUs for the peak are held always, as SODA's baselines do;
``packed``: up to four services on one GPU, as ABACUS does."""
START_S = 60.0
"""Our choice: an instance answers so long after its task started (a model is loaded, and a GPU warmed up)."""


@dataclass(frozen=True, slots=True)
class ServiceSet:
    """What is served."""

    name: str
    services: tuple[Service, ...]
    load: LoadCurve
    node_bandwidth_gb_s: float = math.nan
    """Memory bandwidth of each node up to which nothing is slowed down; NaN: nobody knows."""


@dataclass(frozen=True, slots=True)
class ServingRules:
    """Services and how they are served.

    Raises:
        SimulatorError: a word that means nothing, or a service that cannot be served so.
    """

    services: ServiceSet
    mode: str = BY_SYSTEM
    start_s: float = START_S
    settings: ServiceSettings = field(default_factory=lambda: ServiceSettings(first_everywhere=True))
    """Of a site that lets services go before other jobs."""

    def __post_init__(self) -> None:
        if self.mode not in (*SERVING_MODES, BY_SYSTEM):
            raise SimulatorError(
                f"services cannot be served as {self.mode!r}; choose one of: {', '.join(SERVING_MODES)}"
            )
        for service in self.services.services if self.mode in (PEAK, PACKED) else ():
            if not gpu_capacity_qps(service):
                raise SimulatorError(
                    f"service {service.name} has no profile of a GPU within its target, so it cannot be served as"
                    f" {self.mode}; choose {PLACED}"
                )

    def peak_instances(self) -> list[int]:
        """GPU instances of each service at its peak."""
        peaks = self.services.load.peak_qps.tolist()
        return [
            max(instances_for(qps, gpu_capacity_qps(service), self.settings.headroom), service.least, 1)
            for qps, service in zip(peaks, self.services.services, strict=True)
        ]


def gpu_capacity_qps(service: Service) -> float:
    """What an instance on the slowest GPU type of a service answers; 0: none within the target."""
    return min((one.capacity_qps for one in service.gpu if one.batch), default=0.0)


def cores_of(service: Service, device: Device) -> int:
    """CPU cores that a task of a service asks for."""
    profiles = [service.cpu] if device is Device.CPU else list(service.gpu)
    return max((one.cores for one in profiles if one is not None), default=1)


def instances_for(load_qps: float, capacity_qps: float, headroom: float) -> int:
    """Instances that answer a load with headroom to spare."""
    return math.ceil(load_qps / (headroom * capacity_qps) - 1e-9) if load_qps > 0 else 0

"""What sodad knows of one service: by its router's newest report, and by the last cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_soda.wire.services.router_report import RouterReport
from slurm_soda.wire.services.service_file import ReplicaLimits, ServiceFile


class ServiceKey(NamedTuple):
    """Names a service: two users may have one of the same name."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class KnownService:
    """One service by the newest report of its router."""

    key: ServiceKey
    file: ServiceFile
    report: RouterReport
    reported_at_s: float
    """When it came, by sodad's wall clock."""
    reported_steady_s: float
    scaled: ReplicaLimits | None = None
    """What its owner said by command."""
    scaled_from: ReplicaLimits | None = None
    """What the file said then: once it says something else, that holds."""
    rival: str = ""
    """What is to be said of a second router; empty: there is none."""
    rival_s: float = float("-inf")
    """When both reported last, by the steady clock."""
    recent_qps: float | None = None
    """Load by the reports of the last minute; NaN: this daemon has had none."""

    @property
    def limits(self) -> ReplicaLimits:
        """How many instances may run."""
        return self.scaled or self.file.replicas

    @property
    def load_qps(self) -> float:
        """Load that a decision counts with, in queries per second; NaN: not known."""
        return self.report.load_qps if self.recent_qps is None else self.recent_qps


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One task whose job runs."""

    job_id: int
    device: str
    state: str
    """``starting``, ``ready``, ``draining`` or ``failed``."""
    host: str
    since_s: float
    queries: int = 0
    """In flight."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One service, as the last cycle saw it."""

    forecast_qps: float | None = None
    wanted: Mapping[str, int] = field(default_factory=dict)
    """Instances that shall run, by device."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Tasks that wait, by device."""
    reason: str = ""
    instances: tuple[InstanceStatus, ...] = ()
    accounts: frozenset[str] = frozenset()
    """Of its tasks."""

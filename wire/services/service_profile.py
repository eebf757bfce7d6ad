"""What was measured of a service's instances, as ``profile.json`` in its folder and in its router's reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from slurm_soda.wire.json_fields import JsonFields

DEVICES = ("cpu", "gpu")
MOST_PROFILES = 32


@dataclass(frozen=True, slots=True)
class ProfiledDevice:
    """What one instance does on one device (and GPU type) within the target (paper 004, Section V-D, offline stage)."""

    device: str
    """One of :data:`DEVICES`."""
    batch: int
    """Largest number of queries at once with which the target holds; 0: the device cannot meet it."""
    batch_ms: float
    """Time that such a batch is computed in; where :attr:`batch` is 0, a batch of one."""
    error_ratio: float = 0.0
    """By what part the measured times varied around :attr:`batch_ms`."""
    cores: int = 1
    """Fewest cores that reach that batch."""
    gpu_type: str = ""
    bandwidth_gb_s: float | None = None
    """Memory bandwidth that it takes; None where it could not be read."""


@dataclass(frozen=True, slots=True)
class ServiceProfile:
    """All devices that a service was profiled on."""

    target_ms: float
    """Target and window that it was profiled for: with others it is to be profiled again."""
    window_ms: float
    measured_at_s: float
    """Unix seconds."""
    devices: tuple[ProfiledDevice, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object, what: str) -> ServiceProfile:
        """Read a profile.

        Raises:
            RecordError: a field is missing or out of range; names it, the value and what is allowed.
        """
        fields = JsonFields(what, data)
        return cls(
            target_ms=fields.number("target_ms", 1.0, 600_000.0),
            window_ms=fields.number("window_ms", 0.0, 600_000.0),
            measured_at_s=fields.number("measured_at_s"),
            devices=tuple(_device(one, what) for one in fields.objects("devices", MOST_PROFILES)),
        )


def _device(data: object, what: str) -> ProfiledDevice:
    fields = JsonFields(f"{what} devices", data)
    bandwidth = fields.number("bandwidth_gb_s", 0.0, 1e6, -0.0) if _has(data, "bandwidth_gb_s") else None
    return ProfiledDevice(
        device=fields.choice("device", DEVICES),
        batch=fields.whole("batch", 0, 100_000),
        batch_ms=fields.number("batch_ms", 0.001, 1e7),
        error_ratio=fields.number("error_ratio", 0.0, 100.0, 0.0),
        cores=fields.whole("cores", 0, 4096, 1),
        gpu_type=fields.text("gpu_type", 64, ""),
        bandwidth_gb_s=bandwidth,
    )


def _has(data: object, key: str) -> bool:
    return isinstance(data, dict) and data.get(key) is not None

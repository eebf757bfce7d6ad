"""What each device can do for a service, by its file and its profile (paper 004, Section V-D)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_soda.policies.services.service import Device, DeviceProfile
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.services.service_file import DeviceRequest, ServiceFile
from slurm_soda.wire.services.service_profile import DEVICES, ProfiledDevice, ServiceProfile

UNPROFILED_CORES = 1
UNPROFILED_BATCH = 1
"""What an instance gets where neither the file nor a profile says: the smallest that works."""

_GPU_TYPE = r"([A-Za-z][\w.-]*)(?::\d+)?(?=$|[ ,])"
_GPU_ASKED = re.compile(rf"(?:--gres[= ](?:\S*,)?(?:gres/)?gpu:|(?:--gpus(?:-per-\w+)?[= ]|-G ?)){_GPU_TYPE}")


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """One row of a profile, held against the service's target."""

    device: str
    gpu_type: str
    cores: int
    batch: int
    batch_ms: float
    error_ratio: float
    capacity_qps: float
    """Queries in a second of one instance; 0 where the target is not met."""
    slowest_ms: float
    """Longest time that a query of a steady load within that takes."""
    meets_target: bool

    @property
    def label(self) -> str:
        """Device and GPU type for people."""
        return f"{self.device} {self.gpu_type}".rstrip()


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What the instances of one array get."""

    device: str
    cores: int
    gpus: int
    batch: int
    gpu_type: str
    """As the file's types or its arguments of ``sbatch`` ask for it; empty: any."""
    profiled: bool
    """Cores and batch are from a profile or the file, not :data:`UNPROFILED_CORES` and :data:`UNPROFILED_BATCH`."""
    objection: str = ""
    """Why no instance on this device meets the target, by the profile; empty if one does, or nothing was measured."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of a service before it runs."""

    measured: tuple[MeasuredDevice, ...]
    plans: tuple[ArrayPlan, ...]
    """One for each device that the file allows, and for each GPU type that it names."""
    remarks: tuple[str, ...]
    """What its owner should know, a line each."""

    @property
    def refusal(self) -> str:
        """Why it is not worth starting: every device was measured, and none meets the target."""
        return "; ".join(plan.objection for plan in self.plans) if all(plan.objection for plan in self.plans) else ""


def assess(service: ServiceFile, profile: ServiceProfile | None) -> Assessment:
    """Hold a profile against the service's target, and choose cores and batch for each device that the file allows."""
    measured = tuple(_held_against(service, row) for row in (profile.devices if profile else ()))
    plans = tuple(
        _plan(service, device, request, gpu_type, measured)
        for device in DEVICES
        if (request := _request(service, device)) is not None
        for gpu_type in request.types or (asked_gpu_type(request.sbatch) if device == "gpu" else "",)
    )
    return Assessment(measured, plans, tuple(_remarks(service, profile, plans)))


def check_target(found: Assessment, service: ServiceFile) -> None:
    """Refuse a target that no device meets.

    Raises:
        SodaError: none does; with the figures of each.
    """
    if found.refusal:
        raise SodaError(
            f"{service.name}: no device answers within target_ms {service.target_ms:g}: {found.refusal}; raise target_ms,"
            " shorten window_ms, allow another device, or profile again with more cores"
        )


def _request(service: ServiceFile, device: str) -> DeviceRequest | None:
    return service.cpu if device == "cpu" else service.gpu


def _held_against(service: ServiceFile, row: ProfiledDevice) -> MeasuredDevice:
    kind = Device.CPU if row.device == "cpu" else Device.GPU
    known = DeviceProfile(kind, row.batch, row.batch_ms, row.error_ratio, row.cores, row.gpu_type)
    slowest_ms = known.slowest_ms(service.window_ms)
    meets = row.batch > 0 and slowest_ms <= service.target_ms
    return MeasuredDevice(
        device=row.device,
        gpu_type=row.gpu_type,
        cores=row.cores,
        batch=row.batch,
        batch_ms=row.batch_ms,
        error_ratio=row.error_ratio,
        capacity_qps=known.capacity_qps if meets else 0.0,
        slowest_ms=slowest_ms,
        meets_target=meets,
    )


def asked_gpu_type(arguments: Sequence[str]) -> str:
    """The GPU type in the arguments of ``sbatch``, such as ``--gres=gpu:a100:1``; empty if none is named."""
    match = _GPU_ASKED.search(" ".join(arguments))
    return match[1] if match else ""


def _plan(
    service: ServiceFile, device: str, request: DeviceRequest, gpu_type: str, measured: Sequence[MeasuredDevice]
) -> ArrayPlan:
    rows = [row for row in measured if row.device == device and (not gpu_type or row.gpu_type in ("", gpu_type))]
    good = [row for row in rows if row.meets_target]
    return ArrayPlan(
        device=device,
        # Which GPU a task gets is not known when it is submitted: what suffices on each type of them, and is safe on all.
        cores=request.cores or max((max(1, row.cores) for row in good), default=UNPROFILED_CORES),
        gpus=request.gpus,
        batch=request.batch or min((row.batch for row in good), default=UNPROFILED_BATCH),
        gpu_type=gpu_type,
        profiled=bool(good),
        objection="; ".join(_objection(service, row) for row in rows) if rows and not good else "",
    )


def _objection(service: ServiceFile, row: MeasuredDevice) -> str:
    size = f"a batch of {row.batch}" if row.batch else "one query alone"
    return (
        f"{row.label}: {service.window_ms:g} + 2 x {row.batch_ms:g} x (1 + {row.error_ratio:g}) ="
        f" {row.slowest_ms:.0f} ms with {size}"
    )


def _remarks(service: ServiceFile, profile: ServiceProfile | None, plans: Sequence[ArrayPlan]) -> list[str]:
    remarks = []
    if profile and (profile.target_ms, profile.window_ms) != (service.target_ms, service.window_ms):
        remarks.append(
            f"the profile was measured for target_ms {profile.target_ms:g} and window_ms {profile.window_ms:g}, and the"
            f" file says {service.target_ms:g} and {service.window_ms:g}: profile it again, another batch may be the best"
        )
    for plan in plans:
        request = _request(service, plan.device) or DeviceRequest()
        if plan.objection:
            array = "no array of it" if request.types else "no array"
            remarks.append(f"{plan.device}: {array} is submitted, it does not meet the target: {plan.objection}")
        elif not plan.profiled:
            of_type = f" on {plan.gpu_type}" if plan.gpu_type else ""
            cores = "1 core" if plan.cores == 1 else f"{plan.cores} cores"
            remarks.append(
                f"{plan.device}: not profiled{of_type}, so its instances get {cores} and batches of {plan.batch} (what the"
                " file says, else the smallest), and their latency is unknown; `sodactl service profile` measures it"
            )
        elif request.batch or request.cores:
            remarks += _departures(plan, request, profile)
    return remarks


def _departures(plan: ArrayPlan, request: DeviceRequest, profile: ServiceProfile | None) -> list[str]:
    """Where the file's own values leave what was measured."""
    rows = [row for row in profile.devices if row.device == plan.device and row.batch] if profile else []
    most, least = max((row.batch for row in rows), default=0), min((row.cores for row in rows), default=0)
    found = []
    if request.batch > most:
        found.append(f"{plan.device}: batch is {request.batch}, and up to {most} was measured to meet the target")
    if request.cores and request.cores < least:
        found.append(f"{plan.device}: cores is {request.cores}, and {least} were needed for what was measured")
    return found

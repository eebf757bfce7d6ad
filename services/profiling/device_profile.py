"""Profiles a service on one device: its largest batch within the target, and the cores that this needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_soda.services.profiling.bandwidth import bandwidth_gb_s, transferred_bytes
from slurm_soda.services.profiling.batch_search import LatencyTarget, MeasuredBatch, fewest_cores, largest_batch
from slurm_soda.services.profiling.measurement import BatchMeter, ProfileError, Query
from slurm_soda.wire.services.service_file import DeviceRequest, ServiceFile
from slurm_soda.wire.services.service_profile import ProfiledDevice

MOST_BATCH = 256
IDLE_S = 1.0


@dataclass(frozen=True, slots=True)
class ProfileLimits:
    """How far a profile goes."""

    until_s: float
    """``time.monotonic()`` after which nothing more is tried."""
    usable_cores: int
    """CPU cores of this machine that the command may use."""
    most_batch: int = MOST_BATCH


@dataclass(frozen=True, slots=True)
class DeviceFindings:
    """A device's profile, and what to tell the owner."""

    profile: ProfiledDevice
    meaning: str


def profile_device(
    service: ServiceFile,
    device: str,
    query: Query,
    directory: str,
    limits: ProfileLimits,
    *,
    gpu_type: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> DeviceFindings:
    """Measure a service on a device of this machine (paper 004, Section V-D, offline stage).

    First on the most cores, the largest batch within the target; then the fewest cores that reach it. What the service's
    file fixes is not searched.

    Args:
        service: the service.
        device: one of ``DEVICES``, which the service's file has a table for.
        query: what is sent.
        directory: in which the command runs, as in a job.
        limits: when to stop, and how much of this machine to use.
        gpu_type: as Slurm names it, of a GPU.
        tell: gets a line about each measurement.

    Raises:
        ProfileError: it cannot be measured here.
    """
    request = _request(service, device)
    most_cores = request.cores or limits.usable_cores
    if most_cores > limits.usable_cores:
        raise ProfileError(
            f"[{device}] asks for {most_cores} cores, and this process may use {limits.usable_cores}; profile in a job"
            " that has as many, or set fewer"
        )
    target = LatencyTarget(service.target_ms, service.window_ms)
    meter = BatchMeter(service, device, query, directory, idle_gb_s=_idle_gb_s())

    def measure(batch: int, cores: int) -> MeasuredBatch:
        left_s = limits.until_s - time.monotonic()
        measured = replace(meter, start_limit_s=max(1.0, min(meter.start_limit_s, left_s))).measure(batch, cores)
        tell(_line(measured, target))
        return measured

    def is_over() -> bool:
        return time.monotonic() >= limits.until_s

    most_batch = request.batch or limits.most_batch
    best = largest_batch(lambda batch: measure(batch, most_cores), target, most_batch, is_over)
    if not target.is_met(best):
        return _cannot(best, device, gpu_type, target)
    if not request.cores:
        best = fewest_cores(lambda cores: measure(best.batch, cores), best, target, is_over)
    return _can(best, device, gpu_type, target, _ended_early(is_over()))


def _request(service: ServiceFile, device: str) -> DeviceRequest:
    request = service.cpu if device == "cpu" else service.gpu
    if request is None:
        raise ProfileError(f"service {service.name} has no table [{device}]; add one, or profile another device")
    return request


def _can(best: MeasuredBatch, device: str, gpu_type: str, target: LatencyTarget, remark: str) -> DeviceFindings:
    profile = ProfiledDevice(
        device, best.batch, best.batch_ms, best.error_ratio, best.cores, gpu_type, best.bandwidth_gb_s
    )
    qps = 1000.0 * best.batch / (best.batch_ms * (1.0 + best.error_ratio))  # as it is counted on
    told = (
        f"{_name(device, gpu_type)}: batches of {best.batch} on {_cores(best.cores)} take {best.batch_ms:.1f} ms"
        f" (+{100 * best.error_ratio:.0f} %): {qps:.0f} queries/s an instance, the slowest within"
        f" {best.slowest_ms(target.window_ms):.0f} of {target.target_ms:g} ms{remark}"
    )
    return DeviceFindings(profile, told)


def _cannot(one: MeasuredBatch, device: str, gpu_type: str, target: LatencyTarget) -> DeviceFindings:
    profile = ProfiledDevice(device, 0, one.batch_ms, one.error_ratio, one.cores, gpu_type, one.bandwidth_gb_s)
    told = (
        f"{_name(device, gpu_type)}: cannot meet {target.target_ms:g} ms: one query alone takes {one.batch_ms:.1f} ms"
        f" (+{100 * one.error_ratio:.0f} %) on {_cores(one.cores)}, so the slowest would take"
        f" {one.slowest_ms(target.window_ms):.0f} ms (window {target.window_ms:g} + 2 batches)"
    )
    return DeviceFindings(profile, told)


def _line(measured: MeasuredBatch, target: LatencyTarget) -> str:
    what = f"batch {measured.batch} on {_cores(measured.cores)}"
    if measured.failed:
        return f"{what}: {measured.failed}"
    slowest = f"slowest {measured.slowest_ms(target.window_ms):.0f} ms"
    verdict = "within" if target.is_met(measured) else "beyond"
    return f"{what}: {measured.batch_ms:.1f} ms (+{100 * measured.error_ratio:.0f} %), {slowest}, {verdict}"


def _ended_early(over: bool) -> str:
    return "; time was up, more may be possible (--limit-s)" if over else ""


def _name(device: str, gpu_type: str) -> str:
    return f"{device} {gpu_type}".rstrip()


def _cores(number: int) -> str:
    return "1 core" if number == 1 else f"{number} cores"


def _idle_gb_s() -> float:
    """What this machine transfers without the service; 0 where that cannot be read."""
    before = transferred_bytes()
    if before is None:
        return 0.0
    time.sleep(IDLE_S)
    return bandwidth_gb_s(before, transferred_bytes(), IDLE_S) or 0.0

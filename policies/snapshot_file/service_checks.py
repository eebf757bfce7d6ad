"""Whether what a file says of services belongs together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.scope.scope import LeftOut
from slurm_soda.policies.services.service import Device, DeviceProfile, InstanceState, Service
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.snapshot_file.values import EncodingError, unexpected

_WHERE = "snapshot.services"
_MOST = 2**40
_MOST_INSTANCES = 100_000


def check_services(snapshot: ClusterSnapshot) -> None:
    """Check lengths, codes and ranges of the services of a snapshot.

    Raises:
        EncodingError: something does not fit; it is named with its value.
    """
    table = snapshot.services
    for at, service in enumerate(table.services):
        _check_service(service, f"{_WHERE}.services[{at}]")
    count, running, tasks = len(table.services), len(table.job_id), len(table.task_id)
    by_service = ("load_qps", "forecast_qps", "low_since_s")
    lengths = [(name, {count}) for name in by_service]
    lengths += [(name, {running}) for name in ("job_id", "service", "device", "state", "since_s")]
    lengths += [(name, {tasks}) for name in ("task_id", "task_service", "task_device")]
    lengths += [("free_bandwidth_gb_s", {0, len(snapshot.nodes)}), ("left_out", {0, count})]
    for name, allowed in lengths:
        column = getattr(table, name)
        if column.ndim != 1 or len(column) not in allowed:
            shown = " x ".join(map(str, column.shape))
            raise EncodingError(
                f"{_WHERE}.{name} has {shown} values: expected {' or '.join(map(str, sorted(allowed)))}"
            )
    if table.waiting.shape != (count, len(Device)):
        raise unexpected(
            f"{_WHERE}.waiting", table.waiting.shape, f"the shape {(count, len(Device))}: services, devices"
        )
    for name, column in (("failures", table.failures), ("by_owner", table.by_owner)):
        if column.shape not in ((0, len(Device)), table.waiting.shape):
            raise unexpected(f"{_WHERE}.{name}", column.shape, f"the shape {table.waiting.shape}, or no values")
    _check_range("waiting", table.waiting.ravel(), 0, _MOST_INSTANCES)
    _check_range("failures", table.failures.ravel(), 0, _MOST)
    _check_range("by_owner", table.by_owner.ravel(), 0, _MOST_INSTANCES)
    for name in ("load_qps", "forecast_qps", "free_bandwidth_gb_s"):
        _check_range(name, getattr(table, name), 0, _MOST)
    for name in ("low_since_s", "since_s"):
        _check_range(name, getattr(table, name), -_MOST, _MOST)
    codes = [("service", count), ("device", len(Device)), ("state", len(InstanceState))]
    codes += [("task_service", count), ("task_device", len(Device)), ("left_out", len(LeftOut))]
    for name, names in codes:
        _check_range(name, getattr(table, name), 0, names - 1)
    for name in ("job_id", "task_id"):
        column = getattr(table, name)
        _check_range(name, column, 1, _MOST)
        late = np.flatnonzero(np.diff(column) <= 0)
        if len(late):
            raise unexpected(f"{_WHERE}.{name}[{late[0] + 1}]", int(column[late[0] + 1]), "ascending job ids")


def _check_service(service: Service, where: str) -> None:
    for name, value, holds, words in _rules(service):
        if not holds:
            raise unexpected(f"{where}.{name}", value, words)


def _rules(service: Service) -> Iterator[tuple[str, Any, bool, str]]:
    yield "least", service.least, service.least >= 0, "a whole number from 0"
    yield "most", service.most, service.least <= service.most <= _MOST_INSTANCES, "a whole number from least"
    for name in ("target_ms", "window_ms"):
        value = getattr(service, name)
        yield name, value, 0 <= value <= _MOST, "milliseconds"
    profiles = [("cpu", service.cpu, Device.CPU)] if service.cpu is not None else []
    profiles += [(f"gpu[{at}]", one, Device.GPU) for at, one in enumerate(service.gpu)]
    for name, profile, device in profiles:
        yield from _profile_rules(name, profile, device)


def _profile_rules(name: str, profile: DeviceProfile, device: Device) -> Iterator[tuple[str, Any, bool, str]]:
    yield f"{name}.device", profile.device, profile.device is device, device.name
    yield f"{name}.batch", profile.batch, 0 <= profile.batch <= _MOST, f"a whole number from 0 to {_MOST}"
    yield f"{name}.cores", profile.cores, 0 <= profile.cores <= _MOST, f"a whole number from 0 to {_MOST}"
    yield f"{name}.batch_ms", profile.batch_ms, 1e-6 <= profile.batch_ms <= _MOST, "milliseconds"
    yield f"{name}.error_ratio", profile.error_ratio, 0 <= profile.error_ratio <= _MOST, "a number from 0"
    bandwidth = profile.bandwidth_gb_s
    yield (
        f"{name}.bandwidth_gb_s",
        bandwidth,
        not bandwidth < 0 and bandwidth != float("inf"),
        "a number from 0, or nan",
    )


def _check_range(name: str, column: NDArray[Any], least: int, most: int) -> None:
    wrong = np.flatnonzero((column < least) | (column > most))  # NaN is neither: nobody knows
    if len(wrong):
        words = f"a number from {least} to {most}"
        raise unexpected(f"{_WHERE}.{name}[{wrong[0]}]", column[wrong[0]].item(), words)

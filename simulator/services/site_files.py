"""A site's own services: a CSV of their load, and beside it each one's file and profile, as slurm-soda has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slurm_soda.policies.services.service import Device, DeviceProfile, Service
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.services.load import load_from_csv, services_of_csv
from slurm_soda.simulator.services.service_set import ServiceSet
from slurm_soda.simulator.services.twelve import soda_twelve
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.services.service_file import DeviceRequest, read_service_file
from slurm_soda.wire.services.service_profile import ProfiledDevice, ServiceProfile

SODA_TWELVE = "soda-twelve"
"""Names SODA's services instead of a file."""
_OWNER = "services"
_PARTITION_OPTIONS = ("--partition", "-p")


def load_services(named: str, seed: int) -> ServiceSet:
    """The services that a person named: :data:`SODA_TWELVE`, drawn by ``seed``, or a CSV of load.

    Beside the CSV stand ``NAME.toml``, the service's file, and ``NAME/profile.json``, its profile, for each service in it.

    Raises:
        SimulatorError: a file is missing or cannot be used; it names the file and what would be right.
    """
    if named == SODA_TWELVE:
        return soda_twelve(seed)
    path = Path(named)
    names = services_of_csv(path)
    services = tuple(_service(path.parent, name) for name in names)
    return ServiceSet(str(path), services, load_from_csv(path, names))


def _service(folder: Path, name: str) -> Service:
    path = folder / f"{name}.toml"
    profile_path = folder / name / "profile.json"
    try:
        described = read_service_file(_text(path), str(path))
        profile = ServiceProfile.from_dict(json.loads(_text(profile_path)), str(profile_path))
    except (RecordError, json.JSONDecodeError) as error:
        where = "" if isinstance(error, RecordError) else f"{profile_path}: no JSON: "
        raise SimulatorError(f"{where}{error}") from error
    if described.name != name:
        raise SimulatorError(f"{path}: its name is {described.name!r}; write name = {name!r}, or rename the file")
    on_cpu = next((one for one in profile.devices if one.device == "cpu"), None)
    on_gpu = [one for one in profile.devices if one.device == "gpu"]
    return Service(
        owner=_OWNER,
        name=name,
        target_ms=described.target_ms,
        window_ms=described.window_ms,
        least=described.replicas.least,
        most=described.replicas.most,
        cpu=None if on_cpu is None or described.cpu is None else _profile(on_cpu, Device.CPU),
        gpu=() if described.gpu is None else tuple(_profile(one, Device.GPU) for one in on_gpu),
        cpu_partition=_partition(described.cpu),
        gpu_partition=_partition(described.gpu),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(
            str(path), 0, f"cannot be read ({error}); each service of the load has a file there"
        ) from error


def _profile(one: ProfiledDevice, device: Device) -> DeviceProfile:
    bandwidth = np.nan if one.bandwidth_gb_s is None else one.bandwidth_gb_s
    return DeviceProfile(
        device, one.batch, one.batch_ms, one.error_ratio, max(one.cores, 1), one.gpu_type, float(bandwidth)
    )


def _partition(request: DeviceRequest | None) -> str:
    """The partition that sbatch is told, the first of several; empty: Slurm's default one."""
    words: Sequence[str] = () if request is None else request.sbatch
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in _PARTITION_OPTIONS:
            told = value if equals else "".join(words[at + 1 : at + 2])
            return told.split(",")[0]
    return ""

"""The file in which an owner describes an inference service (TOML, docs/services.md)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.json_fields import JsonFields

LONGEST_FILE = 64 * 1024
MOST_LINES, MOST_DOTS = 1000, 100
"""Of a file, and in one of its lines: tomllib's time grows with the square of the parts of a dotted key, which is half a
minute for 64 KiB of ``a.a.a`` (Python 3.11), and with the depth of a table times its lines."""
MOST_REPLICAS = 1000
MOST_TYPES = 16
PLACEHOLDERS = ("port", "device", "batch", "window_ms", "cores")
"""What ``command`` may name in braces, filled in for each instance."""

_GPU_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Instances of a service at a time, on all devices together."""

    least: int = 1
    most: int = 4


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What the array of one device asks Slurm for."""

    cores: int = 0
    """CPU cores of an instance; 0: as many as the profile says."""
    gpus: int = 0
    """GPUs of an instance; 0 on the CPU."""
    types: tuple[str, ...] = ()
    """Types of GPU, each of which gets an array of its own; empty: one array, for whatever ``sbatch`` asks for."""
    batch: int = 0
    """Largest number of queries at once; 0: as many as the profile says."""
    sbatch: tuple[str, ...] = ()
    """Further arguments of ``sbatch``, such as a partition."""


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A service as its owner describes it."""

    name: str
    command: str
    """Shell command of one instance, with :data:`PLACEHOLDERS` in braces."""
    model: str = ""
    """Name by which what was learned is kept; empty: that of the service."""
    health: str = "/health"
    """Path that answers 200 once the instance can serve."""
    target_ms: float = 200.0
    """Latency within which 99 % of the queries shall be answered."""
    window_ms: float = 50.0
    """How long an instance collects queries for a batch."""
    query: str = ""
    """File with the body of one query, for ``sodactl service profile``; it is sent as JSON if its name ends in .json."""
    query_path: str = "/predict"
    """Path that queries are posted to."""
    folder: str = ""
    """Folder on a file system that nodes and router share; empty: ``services`` beside the service's file."""
    replicas: ReplicaLimits = ReplicaLimits()
    cpu: DeviceRequest | None = None
    """None: it may not run on CPU cores."""
    gpu: DeviceRequest | None = None
    """None: it may not run on a GPU."""


def read_service_file(text: str, what: str) -> ServiceFile:
    """The service that ``text`` describes; ``what`` names the file in errors.

    Raises:
        RecordError: no TOML, an unknown key, or a value that is not allowed; names it and what is.
    """
    if len(text) > LONGEST_FILE:
        raise RecordError(f"{what}: {len(text)} characters; at most {LONGEST_FILE} are read")
    _refuse_costly(what, text)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits is a plain ValueError
        raise RecordError(f"{what}: cannot be read as TOML ({str(error)[:120]})") from error
    _refuse_unknown(what, data, _KEYS)
    fields = JsonFields(what, data)
    name = fields.text("name", 40)
    if not _NAME.fullmatch(name):
        raise RecordError(f"{what}: name is {name!r}; allowed are up to 40 small letters, digits and hyphens")
    target_ms = fields.number("target_ms", 1.0, 600_000.0, 200.0)
    window_ms = fields.number("window_ms", 0.0, 600_000.0, 50.0)
    if window_ms >= target_ms:
        raise RecordError(
            f"{what}: window_ms is {window_ms:g}, and target_ms {target_ms:g}; a query waits for the whole window"
            " and twice the time of a batch, so the window must be shorter than the target"
        )
    cpu, gpu = _device(what, data, "cpu"), _device(what, data, "gpu")
    if cpu is None and gpu is None:
        raise RecordError(f"{what}: neither [cpu] nor [gpu] is there; add the table of each device that it may run on")
    return ServiceFile(
        name=name,
        command=_command(what, fields.text("command", 4096)),
        model=fields.text("model", 200, "") or name,
        health=_path(what, "health", fields.text("health", 200, "/health")),
        target_ms=target_ms,
        window_ms=window_ms,
        query=fields.text("query", 4096, ""),
        query_path=_path(what, "query_path", fields.text("query_path", 200, "/predict")),
        folder=fields.text("folder", 4096, ""),
        replicas=_replicas(what, data),
        cpu=cpu,
        gpu=gpu,
    )


def _refuse_costly(what: str, text: str) -> None:
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        raise RecordError(f"{what}: {len(lines)} lines; at most {MOST_LINES} are read")
    for number, line in enumerate(lines, 1):
        if line.count(".") > MOST_DOTS:
            raise RecordError(f"{what}: line {number} has {line.count('.')} dots; at most {MOST_DOTS} are read")


_KEYS = (
    *("name", "model", "command", "health", "target_ms", "window_ms"),
    *("query", "query_path", "folder", "replicas", "cpu", "gpu"),
)
_DEVICE_KEYS = {"cpu": ("cores", "batch", "sbatch"), "gpu": ("gpus", "types", "cores", "batch", "sbatch")}


def _refuse_unknown(what: str, data: dict[str, Any], known: Collection[str]) -> None:
    for key in data:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise RecordError(f"{what}: there is no key {key!r}; known are {', '.join(known)}{meant}")


def _command(what: str, command: str) -> str:
    if not command.strip():
        raise RecordError(f"{what}: command is empty; it starts one instance, which listens on {{port}}")
    for named in _PLACEHOLDER.findall(command):
        if named not in PLACEHOLDERS:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise RecordError(
                f"{what}: command has {{{named}}}; filled in are {known} (a brace in the shell: set it in a script)"
            )
    if "{port}" not in command:
        raise RecordError(
            f"{what}: command does not name {{port}}; instances of one node could not listen beside each other"
        )
    return command


def _path(what: str, key: str, path: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]*", path):
        raise RecordError(
            f"{what}: {key} is {path!r}; allowed is a path such as /health, of letters, digits and . _ ~ / -"
        )
    return path


def _replicas(what: str, data: dict[str, Any]) -> ReplicaLimits:
    table = data.get("replicas", {})
    named = f"{what} [replicas]"
    fields = JsonFields(named, table)
    _refuse_unknown(named, table, ("least", "most"))
    least = fields.whole("least", 0, MOST_REPLICAS, 1)
    most = fields.whole("most", 1, MOST_REPLICAS, max(4, least))
    if least > most:
        raise RecordError(f"{named}: least is {least}, and most {most}; most must not be smaller")
    return ReplicaLimits(least, most)


def _device(what: str, data: dict[str, Any], key: str) -> DeviceRequest | None:
    if key not in data:
        return None
    named = f"{what} [{key}]"
    fields = JsonFields(named, data[key])
    _refuse_unknown(named, data[key], _DEVICE_KEYS[key])
    return DeviceRequest(
        cores=fields.whole("cores", 0, 4096, 0),
        gpus=fields.whole("gpus", 1, 64, 1) if key == "gpu" else 0,
        types=_types(named, fields.texts("types", MOST_TYPES, 64)) if key == "gpu" else (),
        batch=fields.whole("batch", 0, 100_000, 0),
        sbatch=fields.texts("sbatch", 64, 1000),
    )


def _types(named: str, types: tuple[str, ...]) -> tuple[str, ...]:
    for one in types:
        if not _GPU_TYPE.fullmatch(one) or types.count(one) > 1:
            raise RecordError(
                f"{named}: types has {one!r}; allowed are different names of types as Slurm's GRES has them, such as a100"
            )
    return types

"""The agent's configuration: every key has a default, so that the file may be absent; a wrong one stops the start.

Precedence: command line, environment (``SODA_AGENT_`` and the key in capitals), file, default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

from slurm_soda.epilog.cgroups import CGROUP_ROOT
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.handover import AGENT_SOCKET
from slurm_soda.wire.spool import MAX_FILES, SPOOL_DIRECTORY

CONFIG_FILE = Path("/etc/slurm-soda/agent.toml")
LOG_LEVELS = ("debug", "info", "warning", "error")


class ConfigError(SodaError):
    """A configuration that cannot be used: names the file, the key, the value and what is expected."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """``agent.toml``. Durations are seconds."""

    controller: str = "http://ctl:6830"
    """Where sodad answers."""
    node: str = ""
    """Slurm's name of this node; empty: the host name up to its first dot."""
    interval_s: float = 2.0
    """Between two samples of a run."""
    young_interval_s: float = 0.5
    """The same while some run is younger than :attr:`young_s`, so that short runs are seen too."""
    young_s: float = 10.0
    upload_interval_s: float = 2.0
    """Between two reports while something changes."""
    heartbeat_s: float = 30.0
    """Between two reports while nothing does."""
    upload_timeout_s: float = 10.0
    retry_max_s: float = 15.0
    """Longest pause between attempts while the controller is away."""
    lost_after_s: float = 86_400.0
    """A run without a close and without a process for so long counts as over; an allocation may well idle for hours."""
    socket: str = AGENT_SOCKET
    spool: str = SPOOL_DIRECTORY
    spool_files: int = MAX_FILES
    cgroup_root: str = CGROUP_ROOT
    log_level: str = "info"


def load(path: Path, environ: Mapping[str, str], *, required: bool = False) -> AgentConfig:
    """Read the configuration.

    Args:
        path: the TOML file.
        environ: overrides, see the module.
        required: the file was asked for by name, so it must exist.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown, of a wrong type or out of range.
    """
    values: dict[str, object] = {}
    try:
        values = _checked(tomllib.loads(path.read_text("utf-8")), str(path))
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    config = AgentConfig(**{**values, **_from_environment(environ)})  # type: ignore[arg-type]  # _checked checks types
    return _in_range(config, str(path))


def _types() -> dict[str, type]:
    return {spec.name: type(spec.default) for spec in fields(AgentConfig)}


def _checked(values: Mapping[str, object], source: str) -> dict[str, object]:
    types = _types()
    for key, value in values.items():
        if key not in types:
            raise ConfigError(f"{source}: unknown key {key!a}; known are {', '.join(types)}")
        expected = types[key]
        allowed = (int, float) if expected is float else (expected,)
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise ConfigError(f"{source}: {key} is {value!a}; expected {_TYPE_NAMES[expected]}")
    return dict(values)


_TYPE_NAMES: dict[type, str] = {str: "text in quotes", float: "a number", int: "a whole number"}


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, kind in _types().items():
        name = f"SODA_AGENT_{key.upper()}"
        if name in environ:
            try:
                found[key] = kind(environ[name])
            except ValueError:
                raise ConfigError(f"environment: {name} is {environ[name]!a}; expected {_TYPE_NAMES[kind]}") from None
    return found


def _in_range(config: AgentConfig, source: str) -> AgentConfig:
    for spec in fields(AgentConfig):
        value = getattr(config, spec.name)
        if spec.name.endswith("_s") and not 0.05 <= value <= 86_400:
            raise ConfigError(f"{source}: {spec.name} is {value}; expected a number of seconds from 0.05 to 86400")
    if not 64 <= config.spool_files <= 1_000_000:
        raise ConfigError(f"{source}: spool_files is {config.spool_files}; expected a whole number from 64 to 1000000")
    if config.log_level not in LOG_LEVELS:
        raise ConfigError(f"{source}: log_level is {config.log_level!a}; expected one of {', '.join(LOG_LEVELS)}")
    if urlsplit(config.controller).scheme not in ("http", "https") or not urlsplit(config.controller).hostname:
        raise ConfigError(f"{source}: controller is {config.controller!a}; expected a URL such as http://ctl:6830")
    return config

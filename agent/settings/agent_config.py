"""The agent's configuration: every key has a default, so that the file may be absent; a wrong one stops the start.

Precedence: command line, environment (``SODA_AGENT_`` and the key in capitals, ``SODA_AGENT_CORES_STEP_S`` for one of a
table), file, default. A controller's table is a frozen dataclass of its package, which raises SodaError for values out of
range, and a field of :class:`AgentConfig`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from slurm_soda.agent.sampling.progress_files import PROGRESS_DIRECTORY
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings
from slurm_soda.agent.settings.memory import MemorySettings
from slurm_soda.agent.settings.network import NetworkSettings
from slurm_soda.epilog.job_cgroups import CGROUP_ROOT
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.event_delivery import AGENT_SOCKET
from slurm_soda.wire.spool import MAX_FILES, SPOOL_DIRECTORY

CONFIG_FILE = Path("/etc/slurm-soda/agent.toml")
STATE_DIRECTORY = "/var/lib/slurm-soda-agent"
MAX_CONTROLLERS = 8
LOG_LEVELS = ("debug", "info", "warning", "error")


class AgentConfigError(SodaError):
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
    controller_user: str = "slurm"
    """Who runs sodad, by name or number; nobody else's answers are believed, except root's."""
    controllers: tuple[str, ...] = ()
    """Where sodad may answer, at a site with several controllers: tried in turn, from the one that took the last report. In
    place of :attr:`controller`."""
    lost_after_s: float = 86_400.0
    """A run without a close and without a process for so long counts as over; an allocation may well idle for hours."""
    socket: str = AGENT_SOCKET
    spool: str = SPOOL_DIRECTORY
    spool_files: int = MAX_FILES
    cgroup_root: str = CGROUP_ROOT
    progress: str = PROGRESS_DIRECTORY
    """Where jobs tell how far they are, each owner's in a directory of his own."""
    log_level: str = "info"
    state: str = STATE_DIRECTORY
    """Where controllers record their limits before they set them: root's, and kept over a restart of the agent."""
    cores: CoreTuningSettings = field(default_factory=CoreTuningSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)


def load_agent_config(path: Path, environ: Mapping[str, str], *, required: bool = False) -> AgentConfig:
    """Read the configuration.

    Args:
        path: the TOML file.
        environ: overrides, see the module.
        required: the file was asked for by name, so it must exist.

    Raises:
        AgentConfigError: the file cannot be read, or a key is unknown, of a wrong type or out of range.
    """
    content: dict[str, object] = {}
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise AgentConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise AgentConfigError(f"{path}: cannot be read ({error})") from error
    return _read_section(AgentConfig(), content, environ, _KeyLocation(str(path)))


_Section = TypeVar("_Section")


@dataclass(frozen=True, slots=True)
class _KeyLocation:
    """Where in the file, for messages."""

    file: str
    section: str = ""

    def key(self, name: str) -> str:
        return f"{self.section}.{name}" if self.section else name

    def variable(self, name: str) -> str:
        return f"SODA_AGENT_{self.key(name).replace('.', '_').upper()}"


def _read_section(
    defaults: _Section, content: Mapping[str, object], environ: Mapping[str, str], place: _KeyLocation
) -> _Section:
    """A dataclass with what file and environment say; a field that holds a dataclass is a table of the file."""
    known = {spec.name: getattr(defaults, spec.name) for spec in fields(defaults)}  # type: ignore[arg-type]
    for key in content:
        if key not in known:
            raise AgentConfigError(f"{place.file}: unknown key {place.key(key)!a}; known are {', '.join(known)}")
    values: dict[str, object] = {}
    for key, default in known.items():
        if is_dataclass(default):
            table = content.get(key, {})
            if not isinstance(table, dict):
                raise AgentConfigError(
                    f"{place.file}: {place.key(key)} is {table!a}; expected a table [{place.key(key)}]"
                )
            values[key] = _read_section(default, table, environ, replace(place, section=place.key(key)))
        elif place.variable(key) in environ:
            values[key] = _from_text(environ[place.variable(key)], type(default), place.variable(key))
        elif key in content:
            values[key] = _check_type(content[key], type(default), f"{place.file}: {place.key(key)}")
    try:
        section: _Section = replace(defaults, **values)  # type: ignore[type-var]  # a dataclass, as checked by fields()
    except SodaError as error:
        raise AgentConfigError(f"{place.file}: {error}") from error
    _check_seconds(section, place)
    if isinstance(section, AgentConfig):
        _check_agent(section, place.file)
    return section


_TYPE_NAMES: dict[type, str] = {
    str: "text in quotes",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    tuple: "a list of texts in quotes",
}


def _check_type(value: object, expected: type, what: str) -> object:
    if expected is tuple:
        if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            raise AgentConfigError(f"{what} is {value!a}; expected {_TYPE_NAMES[tuple]}")
        return tuple(value)
    allowed = (int, float) if expected is float else (expected,)
    if isinstance(value, bool) != (expected is bool) or not isinstance(value, allowed):
        raise AgentConfigError(f"{what} is {value!a}; expected {_TYPE_NAMES[expected]}")
    return value


def _from_text(text: str, expected: type, variable: str) -> object:
    if expected is tuple:
        return tuple(text.replace(",", " ").split())
    try:
        return {"true": True, "false": False}[text] if expected is bool else expected(text)
    except (ValueError, KeyError):
        raise AgentConfigError(f"environment: {variable} is {text!a}; expected {_TYPE_NAMES[expected]}") from None


def _check_seconds(section: object, place: _KeyLocation) -> None:
    for spec in fields(section):  # type: ignore[arg-type]
        value = getattr(section, spec.name)
        if spec.name.endswith("_s") and not 0.05 <= value <= 86_400:
            key = place.key(spec.name)
            raise AgentConfigError(f"{place.file}: {key} is {value}; expected a number of seconds from 0.05 to 86400")


def _check_agent(config: AgentConfig, source: str) -> None:
    if not 64 <= config.spool_files <= 1_000_000:
        raise AgentConfigError(
            f"{source}: spool_files is {config.spool_files}; expected a whole number from 64 to 1000000"
        )
    for key in ("socket", "spool", "cgroup_root", "progress", "state"):
        path = getattr(config, key)
        if not path.startswith("/") or not path.isprintable():
            raise AgentConfigError(
                f"{source}: {key} is {path[:80]!a}; expected a path that begins with /, without control characters"
            )
    if config.log_level not in LOG_LEVELS:
        raise AgentConfigError(f"{source}: log_level is {config.log_level!a}; expected one of {', '.join(LOG_LEVELS)}")
    user = config.controller_user
    if not (0 < len(user) <= 256 and user.isprintable()):
        raise AgentConfigError(f"{source}: controller_user is {user[:80]!a}; expected a user's name or number")
    if not _is_url(config.controller):
        raise AgentConfigError(f"{source}: controller is {config.controller!a}; expected a URL such as http://ctl:6830")
    if len(config.controllers) > MAX_CONTROLLERS:
        raise AgentConfigError(
            f"{source}: controllers has {len(config.controllers)}; expected {MAX_CONTROLLERS} at most"
        )
    for each in config.controllers:
        if not _is_url(each):
            raise AgentConfigError(f"{source}: controllers has {each!a}; expected URLs such as http://ctl1:6830")


def _is_url(text: str) -> bool:
    """Whether text is the URL of an HTTP server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is none
        return False

"""The configuration file: one TOML file, every key optional, a wrong one said in one line before anything starts."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from slurm_soda.policies.policy import DEFAULT_POLICY
from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.pools.routes_file import GpuLending
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES

CONFIG_FILE = Path("/etc/slurm-soda/soda.toml")
"""Where the file is looked for; without one every default holds."""

Mode = Literal["observe", "advise", "enforce"]
MODES: tuple[str, ...] = get_args(Mode)

LogLevel = Literal["debug", "info", "warning", "error"]


class DaemonConfigError(SodaError):
    """A configuration that cannot be used; names file, key, value and what is expected there."""


class _Section(BaseModel):
    # strict: `interval_s = "5"` is a mistake worth a word, not a 5; whole numbers still do for a float.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PolicySettings(_Section):
    """``[policy]``: which policy decides, with its parameters by name."""

    name: str = DEFAULT_POLICY
    parameters: dict[str, Any] = Field(default_factory=dict)
    bands: Literal["off", "qos", "fairshare"] = "off"
    """Classes of Slurm's own priority inside which the policy orders jobs: no job delays one of a better class."""


class CycleSettings(_Section):
    """``[cycle]``: how often sodad runs a cycle."""

    interval_s: float = Field(default=10.0, gt=0)
    """Longest time between two cycles when nothing wakes the daemon."""
    busy_interval_s: float = Field(default=0.5, gt=0)
    """Longest time between two cycles while a preemption is on its way."""
    retry_s: float = Field(default=2.0, gt=0)
    """Time to the next attempt after a cycle that failed."""
    debounce_s: float = Field(default=0.1, ge=0)
    """Events this close together share one cycle."""
    lease_s: float = Field(default=35.0, ge=5)
    """What sodad lifted is taken back when its heartbeat is so old."""
    order_depth: int = Field(default=1000, ge=1)
    """How many pending jobs of a queue are lifted at most; the others keep Slurm's own order."""
    passing_limit_s: float = Field(default=DEFAULT_PASSING_LIMIT_S, gt=0)
    """After so long a wait no later job passes or delays one; inf: never. Simulations have the same limit."""
    skipping_limit_s: float = Field(default=0.0, ge=0)
    """The same for one that does not fit and that the policy ranks before the other job, or does not rank at all."""


class ChangeLimitSettings(_Section):
    """``[change_limits]``: how much sodad may change, and when it stops by itself."""

    max_changes_per_cycle: int = Field(default=2000, ge=0)
    min_change_interval_s: float = Field(default=1.0, ge=0)
    """Least time between two changes of one job."""
    breaker_failures: int = Field(default=5, ge=1)
    """Failing cycles in a row that open the breaker."""
    breaker_slow_s: float = Field(default=15.0, gt=0)
    """A read of Slurm slower than this counts as a failure."""
    breaker_pause_s: float = Field(default=60.0, ge=0)
    """Time for which an open breaker only observes."""


class PreemptionSettings(_Section):
    """``[preemption]``: bounds on taking a job's GPUs for another."""

    default_grace_s: float = Field(default=60.0, ge=0)
    """Time to checkpoint for a job that named a signal but no grace."""
    max_grace_s: float = Field(default=900.0, ge=0)
    """Longest grace that a job may ask for."""
    release_after_s: float = Field(default=30.0, ge=0)
    """A requeued job competes again at the latest this long after it left its GPUs, whatever became of its successors."""
    max_per_job: int = Field(default=10, ge=0)
    """A job that was preempted so often keeps its GPUs from then on; 0: no bound."""


class PoolSettings(_Section):
    """``[pools]``: jobs in pools (SODA, Section V-C), where ``sodactl pools apply`` has created them."""

    max_aborts: int = Field(default=3, ge=0)
    """A job that gave back what it had borrowed so often borrows no more."""
    reserve_after_s: float = Field(default=600.0, ge=0)
    """Slurm may reserve whole nodes for the next GPU job of a pool once it has waited so long."""
    partitions: list[str] = Field(default_factory=list)
    """Partitions that are divided; none: the default partition."""
    gpu_lending: GpuLending = "checkpoint"
    """GPU jobs that may borrow GPUs: those that checkpoint at SIGTERM, all that may be requeued, or none."""
    include_path: str = ""
    """The file with pool partitions that slurm.conf includes; empty: ``soda-pools.conf`` beside it."""
    history_days: float = Field(default=28.0, gt=0)
    """Shares are derived from jobs that ran so lately."""
    rederive_s: float = Field(default=86_400.0, ge=0)
    """An enforcing sodad derives the shares anew this often, once pools are applied; 0: never."""


class SharingSettings(_Section):
    """``[sharing]``: jobs that share GPUs. With mode ``advise`` it is shown what would share."""

    partitions: list[str] = Field(default_factory=list)
    """Partitions whose jobs may share GPUs; none: nobody's."""
    consent_by_default: bool = False
    """Whether a job consents that does not say ``--soda-share``."""
    different_users: list[str] = Field(default_factory=list)
    """Of these partitions, those whose jobs may be on a GPU with jobs of other users; none: users share with themselves."""
    gres: str = Field(default=SHARED_GPU_GRES, pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")
    """The generic resource that names the devices of GPUs a second time, with one type for each (``g0`` for GPU 0)."""
    start_within_s: float = Field(default=30.0, ge=1)
    """A guest that has not started after so long is given its own request back."""
    max_slowdown: float | None = Field(default=None, ge=1)
    """How many times as slow as alone a job that shares may be whose owner did not say; ``None``: any number."""
    mps: bool = False
    """Jobs that share a GPU run under MPS, as ``sharing.conf`` on the nodes says; else they take turns on it."""

    @field_validator("different_users")
    @classmethod
    def _share_at_all(cls, names: list[str], info: ValidationInfo) -> list[str]:
        if set(names) - set(info.data.get("partitions", names)):
            raise ValueError("partitions that sharing.partitions names too")
        return names

    @field_validator("gres")
    @classmethod
    def _is_not_gpu(cls, gres: str) -> str:
        if gres in ("gpu", "mps", "shard"):
            raise ValueError("the name of a resource of its own, such as sharedgpu")
        return gres


EVERYWHERE = "*"
"""In :attr:`ServicesSettings.first_in`: every partition."""


class ServicesSettings(_Section):
    """``[services]``: inference services of users, where these have started any."""

    enabled: bool = True
    """Without a service nothing is done; false: reports of routers are refused, and tasks start as in any job array."""
    lease_s: float = Field(default=300.0, ge=60, le=900)
    """A task that shall not start yet gets a begin time so far ahead, renewed while that holds; it ends without sodad."""
    drain_grace_s: float = Field(default=60.0, ge=0, le=3600)
    """A draining instance is requeued after so long, whatever it still answers."""
    silent_after_s: float = Field(default=30.0, ge=2)
    """The load of a service is not known once its router has been silent for so long."""
    most_per_user: int = Field(default=20, ge=1, le=1000)
    """Services that one user may have at a time."""
    headroom: float = Field(default=0.8, gt=0, le=1)
    """Part of an instance's capacity that is counted on."""
    hysteresis: float = Field(default=0.1, ge=0, lt=1)
    """By what part the load must be lower on the way back than on the way out."""
    cool_down_s: float = Field(default=300.0, ge=0, lt=math.inf)
    """Fewer instances, or cores instead of a GPU, only after they would have done for so long."""
    horizon_s: float = Field(default=600.0, ge=60, le=86_400)
    """How far ahead the load is forecast."""
    retry_s: float = Field(default=30.0, gt=0, lt=math.inf)
    """A failed instance is replaced so long after it failed, longer after each further one."""
    requeue_failed_s: float = Field(default=600.0, gt=0, lt=math.inf)
    """Where no more may run beside it, a failed instance is requeued after so long."""
    min_run_s: float = Field(default=60.0, ge=0, lt=math.inf)
    """A job gives way to a service only once it has run for so long since its last start, or for as long as policies say."""
    first_in: list[str] = Field(default_factory=list)
    """Partitions in which tasks of services may go before other jobs, and jobs that may be preempted give way to them;
    ``*``: all; none: nowhere, for any user may report any load of his own service."""


class ScopeSettings(_Section):
    """``[scope]``: which jobs an enforcing sodad changes: those that each list names which is not empty. All others are
    planned and explained, and nothing of them is changed.
    """

    partitions: list[str] = Field(default_factory=list)
    """A job that waits for several partitions must have all of them named."""
    accounts: list[str] = Field(default_factory=list)
    """Exactly these: accounts below them are others."""
    qos: list[str] = Field(default_factory=list)
    users: list[str] = Field(default_factory=list)

    @field_validator("partitions", "accounts", "qos", "users")
    @classmethod
    def _are_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"plain names, one each; {name!r} is none, and patterns and lists in one text are not read"
                )
        if len(set(names)) < len(names):
            double = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"each name once; {double!r} is there twice")
        return names


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
"""A partition, account, QOS or user."""


class StoreSettings(_Section):
    """``[store]``: where sodad remembers."""

    url: str = "sqlite:////var/lib/slurm-soda/soda.db"
    keep_days: float = Field(default=90.0, ge=1)
    """Changes of ended jobs, their cycles and preemptions, and measurements of cores are dropped after so many days."""


class ApiSettings(_Section):
    """``[api]``: where agents report to and what they may send; where users ask, and from where."""

    host: str = "0.0.0.0"  # noqa: S104 - for users on all hosts; every request is authenticated
    port: int = Field(default=6830, ge=0, le=65535)
    report_host: str = ""
    """Where agents report; empty: :attr:`host`."""
    report_port: int | None = Field(default=None, ge=0, le=65535)
    """Port where agents report; ``None``: :attr:`port`."""
    report_uids: list[int] = Field(default_factory=lambda: [0])
    """Users whose reports are believed."""
    max_report_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    public: bool = True
    """Users of any host may ask for jobs and status, within Slurm's PrivateData; otherwise only those of this one."""
    url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Where sodactl finds sodad when it may not read the store; empty: on slurmctld's host, at :attr:`port`."""

    @property
    def has_report_address(self) -> bool:
        """Agents have an address of their own."""
        return bool(self.report_host) or self.report_port is not None

    @property
    def report_address(self) -> tuple[str, int]:
        """Host and port for reports."""
        return self.report_host or self.host, self.port if self.report_port is None else self.report_port


class _OwnAddressSettings(_Section):
    """What sodad serves beside its API, at an address of its own."""

    example_port: ClassVar[int]

    listen: str = ""
    """``HOST:PORT``; empty: nowhere."""

    @field_validator("listen")
    @classmethod
    def _is_address(cls, listen: str) -> str:
        if listen and _split_address(listen) is None:
            at = cls.example_port
            raise ValueError(f'an address and a port, such as "127.0.0.1:{at}" or "[::1]:{at}"; "" for none')
        return listen

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port."""
        return _split_address(self.listen)


class MetricsSettings(_OwnAddressSettings):
    """``[metrics]``: figures for Prometheus, at an address of their own, where nobody has to say who he is."""

    example_port: ClassVar[int] = 6831

    nodes: bool = True
    """Also figures of each node and GPU, at ``/metrics/nodes``."""


class PageSettings(_OwnAddressSettings):
    """``[page]``: a web page for users, at an address of its own, for those who have a link of ``sodactl page``."""

    example_port: ClassVar[int] = 6832

    url: str = Field(default="", pattern=r"^(https?://[A-Za-z0-9._~:/\[\]%-]+)?$")
    """Where browsers reach it, such as that of a proxy with TLS before it; empty: :attr:`listen` itself."""
    session_hours: float = Field(default=12.0, gt=0, le=168)
    """After so long a user needs another link."""


def _split_address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else "" if ":" in host else host
    if not (host and re.fullmatch(r"[A-Za-z0-9._:%-]+", host) and re.fullmatch(r"[0-9]{1,5}", port)):
        return None
    return (host, int(port)) if int(port) <= 65535 else None


class CpuFitSettings(_Section):
    """``[cpu_fit]``: just enough CPU cores for training jobs (SODA, Section V-B)."""

    rewrite: Literal["off", "hinted", "all"] = "hinted"
    """Whose requests are changed while they wait: nobody's, those of jobs that name a ``--soda-category``, all GPU jobs'."""
    tolerance_ratio: float = Field(default=0.02, gt=0, lt=0.5)
    """For jobs on several nodes: best is the fewest cores with at most this share less than the best utilisation."""
    free_unneeded: bool = False
    """For jobs on several nodes: also take cores from those that do as well with one."""


class SlurmSettings(_Section):
    """``[slurm]``: how Slurm is asked, and time limits on all of that."""

    reader: Literal["commands", "pyslurm"] = "commands"
    """Who reads the list of jobs: squeue, or pyslurm in a child process where it fits this Slurm."""
    pyslurm_python: str = Field(default="", pattern=r"^(/[^\x00-\x1f]*)?$")
    """Interpreter that has pyslurm; empty: sodad's own."""
    read_timeout_s: float = Field(default=20.0, gt=0)
    write_timeout_s: float = Field(default=60.0, gt=0)
    accounting: bool = True
    """Complete ended jobs from sacct."""
    accounting_timeout_s: float = Field(default=20.0, gt=0)
    accounting_interval_s: float = Field(default=5.0, gt=0)


class Settings(_Section):
    """All of the configuration file."""

    mode: Mode = "observe"
    log_level: LogLevel = "info"
    state_dir: str = "/var/lib/slurm-soda"
    """Holds the lock that keeps a second sodad out."""
    wake_path: str = "/run/slurm-soda/wake"
    """File that job_submit.lua and EpilogSlurmctld touch."""
    policy: PolicySettings = PolicySettings()
    cycle: CycleSettings = CycleSettings()
    change_limits: ChangeLimitSettings = ChangeLimitSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    pools: PoolSettings = PoolSettings()
    cpu_fit: CpuFitSettings = CpuFitSettings()
    sharing: SharingSettings = SharingSettings()
    services: ServicesSettings = ServicesSettings()
    scope: ScopeSettings = ScopeSettings()
    store: StoreSettings = StoreSettings()
    api: ApiSettings = ApiSettings()
    metrics: MetricsSettings = MetricsSettings()
    page: PageSettings = PageSettings()
    slurm: SlurmSettings = SlurmSettings()


_MOST_BYTES = 1024 * 1024
"""A longer file is none of ours, and a device may never end."""


def load_settings(path: Path | None = None) -> Settings:
    """Read the configuration.

    Args:
        path: the file; ``None`` means :data:`CONFIG_FILE` if it exists, else all defaults.

    Raises:
        DaemonConfigError: the file is missing though named, unreadable, not TOML, or has a wrong key, type or value.
    """
    file = path or CONFIG_FILE
    if path is None and not file.exists():
        return Settings()
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise DaemonConfigError(f"{file}: longer than {_MOST_BYTES} bytes; name the configuration with --config")
        data = tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        raise DaemonConfigError(f"{file}: {error.strerror}; name a readable file with --config") from error
    except (ValueError, RecursionError) as error:
        raise DaemonConfigError(f"{file}: not valid TOML: {error}; correct the file") from error
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        raise DaemonConfigError(f"{file}: {_first_mistake(error)}") from error


def _first_mistake(error: ValidationError) -> str:
    """The first mistake as ``key = value: expected …``; the others show once it is mended."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        return f"{key}: no such key; expected one of {', '.join(_keys_beside(first['loc']))}"
    found = "…" if first["loc"][:1] == ("store",) else repr(first["input"])  # it may hold the database's password
    return f"{key} = {found}: expected {_expected(first)}"


def _keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    section: type[BaseModel] = Settings
    for part in loc[:-1]:
        inner = section.model_fields[str(part)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        section = inner
    return sorted(section.model_fields)


_TYPE_NAMES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "dict_type": "a table",
    "list_type": "a list",
    "model_type": "a table",
}


def _expected(mistake: Any) -> str:
    context = mistake.get("ctx") or {}
    if "expected" in context:
        return f"one of {context['expected']}"
    for bound, words in (("gt", "more than"), ("ge", "at least"), ("le", "at most"), ("lt", "less than")):
        if bound in context:
            return f"{words} {context[bound]}"
    return _TYPE_NAMES.get(str(mistake["type"]), str(mistake["msg"]))

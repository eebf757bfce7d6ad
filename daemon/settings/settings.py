"""All of the configuration file."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from slurm_soda.daemon.settings.addresses import ApiSettings, MetricsSettings, PageSettings
from slurm_soda.daemon.settings.pools import PoolSettings
from slurm_soda.daemon.settings.scheduling import (
    ChangeLimitSettings,
    CpuFitSettings,
    CycleSettings,
    PolicySettings,
    PreemptionSettings,
)
from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.settings.section import HOUR_S, MOST_TIME_LIMIT_S, AbsolutePath, PathOrNone, Section
from slurm_soda.daemon.settings.services import ServicesSettings
from slurm_soda.daemon.settings.sharing import SharingSettings

Mode = Literal["observe", "advise", "enforce"]
MODES: tuple[str, ...] = get_args(Mode)

LogLevel = Literal["debug", "info", "warning", "error"]


class StoreSettings(Section):
    """``[store]``: where sodad remembers."""

    url: str = "sqlite:////var/lib/slurm-soda/soda.db"
    keep_days: float = Field(default=90.0, ge=1, allow_inf_nan=True)
    """Changes of ended jobs, their cycles and preemptions, and measurements of cores are dropped after so many days."""


class SlurmSettings(Section):
    """``[slurm]``: how Slurm is asked, and time limits on all of that."""

    reader: Literal["commands", "pyslurm"] = "commands"
    """Who reads the list of jobs: squeue, or pyslurm in a child process where it fits this Slurm."""
    pyslurm_python: PathOrNone = ""
    """Interpreter that has pyslurm; empty: sodad's own."""
    read_timeout_s: float = Field(default=20.0, gt=0, le=MOST_TIME_LIMIT_S)
    write_timeout_s: float = Field(default=60.0, gt=0, le=MOST_TIME_LIMIT_S)
    accounting: bool = True
    """Complete ended jobs from sacct."""
    accounting_timeout_s: float = Field(default=20.0, gt=0, le=MOST_TIME_LIMIT_S)
    accounting_interval_s: float = Field(default=5.0, gt=0, le=HOUR_S)
    accounting_past_days: int = Field(default=64, ge=0, le=3650)
    """Run times are learned from so many days of accounting before the store; 0: from none."""


class Settings(Section):
    """All of the configuration file."""

    mode: Mode = "observe"
    log_level: LogLevel = "info"
    state_dir: AbsolutePath = "/var/lib/slurm-soda"
    """Holds the lock that keeps a second sodad out."""
    wake_path: AbsolutePath = "/run/slurm-soda/wake"
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

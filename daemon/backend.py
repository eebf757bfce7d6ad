"""The real Slurm behind the ports, as the configuration wants it."""

from __future__ import annotations

from slurm_soda.daemon.completion import Ask
from slurm_soda.daemon.config import SlurmSettings
from slurm_soda.slurm_ext.accounting import Accounting
from slurm_soda.slurm_ext.cli.backend import CliSlurm, TimeLimits
from slurm_soda.slurm_ext.cli.partitions import CliPartitions
from slurm_soda.slurm_ext.cli.runner import LocalRunner
from slurm_soda.slurm_ext.client import SlurmClient


def slurm_client(settings: SlurmSettings) -> SlurmClient:
    """Slurm through its commands."""
    limits = TimeLimits(read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)
    return CliSlurm(LocalRunner(), limits)


def slurm_partitions(settings: SlurmSettings) -> CliPartitions:
    """Slurm's partitions through scontrol."""
    return CliPartitions(LocalRunner(), read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)


def ask_accounting(settings: SlurmSettings) -> Ask | None:
    """Questions to sacct; ``None`` where the configuration switches them off."""
    if not settings.accounting:
        return None
    return Accounting(LocalRunner(), timeout_s=settings.accounting_timeout_s).jobs

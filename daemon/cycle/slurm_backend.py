"""The real Slurm behind the ports, as the configuration wants it."""

from __future__ import annotations

from slurm_soda.daemon.config import SlurmSettings
from slurm_soda.daemon.cycle.accounting_lookup import AccountingQuery
from slurm_soda.slurm_ext.cli_client import CliSlurmClient, CommandTimeouts
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from slurm_soda.slurm_ext.read.sacct import SacctReader


def make_slurm_client(settings: SlurmSettings) -> SlurmClient:
    """Slurm through its commands."""
    limits = CommandTimeouts(read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)
    return CliSlurmClient(LocalCommandRunner(), limits)


def make_partition_client(settings: SlurmSettings) -> ScontrolPartitions:
    """Slurm's partitions through scontrol."""
    return ScontrolPartitions(LocalCommandRunner(), read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)


def make_accounting_query(settings: SlurmSettings) -> AccountingQuery | None:
    """Questions to sacct; ``None`` where the configuration switches them off."""
    if not settings.accounting:
        return None
    return SacctReader(LocalCommandRunner(), timeout_s=settings.accounting_timeout_s).jobs

"""Slurm as sodad uses it: which of its commands read and change what, within the time limits of the configuration."""

from __future__ import annotations

import logging

from slurm_soda.daemon.config import SlurmSettings
from slurm_soda.daemon.cycle.accounting_lookup import AccountingQuery
from slurm_soda.daemon.logs import log
from slurm_soda.slurm_ext.cli_client import CliSlurmClient, CommandTimeouts
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from slurm_soda.slurm_ext.read.sacct import SacctReader
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader


def make_slurm_client(settings: SlurmSettings) -> SlurmClient:
    """Slurm through its commands."""
    limits = CommandTimeouts(read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)
    reader = SqueueReader(lambda why: log(logging.WARNING, "job-not-readable", error=why))
    # Changes end with this process, so that a successor knows when the last one is over.
    return CliSlurmClient(LocalCommandRunner(), limits, reader=reader, writing_runner=LocalCommandRunner(bound=True))


def make_partition_client(settings: SlurmSettings) -> ScontrolPartitions:
    """Slurm's partitions through scontrol."""
    return ScontrolPartitions(
        LocalCommandRunner(bound=True), read_s=settings.read_timeout_s, act_s=settings.write_timeout_s
    )


def make_accounting_query(settings: SlurmSettings) -> AccountingQuery | None:
    """Questions to sacct; ``None`` where the configuration switches them off."""
    if not settings.accounting:
        return None
    return SacctReader(LocalCommandRunner(), timeout_s=settings.accounting_timeout_s).jobs

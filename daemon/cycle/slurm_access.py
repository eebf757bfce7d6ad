"""Slurm as sodad uses it: which of its commands read and change what, within the time limits of the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsQuery
from slurm_soda.daemon.cycle.accounting_lookup import AccountingQuery
from slurm_soda.daemon.learning.accounting_past import PastRunsQuery
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.settings.settings import SlurmSettings
from slurm_soda.slurm_ext.bindings.pyslurm_client import PyslurmClient
from slurm_soda.slurm_ext.bindings.pyslurm_jobs import pyslurm_child_process
from slurm_soda.slurm_ext.cli_client import CliSlurmClient, CommandTimeouts
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.command_runner import CommandRunner, CompletedCommand, LocalCommandRunner
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from slurm_soda.slurm_ext.read.accounting_limits import AccountingLimitsReader
from slurm_soda.slurm_ext.read.past_jobs import PastRunsReader
from slurm_soda.slurm_ext.read.sacct import SacctReader
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader


@dataclass(frozen=True, slots=True)
class KeepingRunner:
    """Runs commands one after the other for a cycle, and keeps its lease meanwhile: a slow Slurm is not a dead sodad."""

    runner: CommandRunner
    keep: Callable[[], None]
    """Called before and after each command, by the thread that runs it; may raise, which ends the cycle."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        self.keep()
        done = self.runner(argv, stdin=stdin, timeout_s=timeout_s, env=env, most_bytes=most_bytes)
        self.keep()
        return done


def command_timeouts(settings: SlurmSettings) -> CommandTimeouts:
    """How long Slurm's commands may take."""
    return CommandTimeouts(read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)


def make_slurm_client(settings: SlurmSettings, reading_runner: CommandRunner, shared_gres: str) -> SlurmClient:
    """Slurm as configured; ``shared_gres`` is the generic resource of guests."""
    reader = SqueueReader(lambda why: log(logging.WARNING, "job-not-readable", error=why), shared_gres)
    # Changes end with this process, so that a successor knows when the last one is over.
    writing_runner = LocalCommandRunner(bound=True)
    limits = command_timeouts(settings)
    if settings.reader == "commands":
        return CliSlurmClient(reading_runner, limits, reader=reader, writing_runner=writing_runner)
    return PyslurmClient(
        reading_runner,
        limits,
        reader=reader,
        writing_runner=writing_runner,
        child=pyslurm_child_process(settings.pyslurm_python, settings.read_timeout_s),
        keep=reading_runner.keep if isinstance(reading_runner, KeepingRunner) else lambda: None,
        on_failure=lambda why: log(logging.WARNING, "pyslurm-does-not-read", error=why),
    )


def reading_problems(client: SlurmClient) -> tuple[str, ...]:
    """Why commands read what something else is configured for, for people."""
    problem = client.pyslurm_jobs.problem if isinstance(client, PyslurmClient) else ""
    return (problem,) if problem else ()


def close_slurm_client(client: SlurmClient) -> None:
    """End what the client has running."""
    if isinstance(client, PyslurmClient):
        client.pyslurm_jobs.close()


def make_partition_client(settings: SlurmSettings, keep: Callable[[], None]) -> ScontrolPartitions:
    """Slurm's partitions through scontrol; for ``keep`` see :class:`KeepingRunner`."""
    runner = KeepingRunner(LocalCommandRunner(bound=True), keep)
    return ScontrolPartitions(runner, read_s=settings.read_timeout_s, act_s=settings.write_timeout_s)


def make_accounting_query(settings: SlurmSettings, shared_gres: str) -> AccountingQuery | None:
    """Questions to sacct, with the generic resource of guests; ``None`` where the configuration switches them off."""
    if not settings.accounting:
        return None
    return SacctReader(LocalCommandRunner(), settings.accounting_timeout_s, shared_gres=shared_gres).jobs


def make_past_runs_query(settings: SlurmSettings, shared_gres: str) -> PastRunsQuery | None:
    """The same about runs of the past, beside the cycle."""
    if not settings.accounting:
        return None
    return PastRunsReader(LocalCommandRunner(), settings.accounting_timeout_s, shared_gres).read


def make_limits_query(settings: SlurmSettings) -> LimitsQuery:
    """Questions about limits of accounting, beside the cycle: its lease is for its own thread to keep."""
    return AccountingLimitsReader(LocalCommandRunner(), settings.accounting_timeout_s).read

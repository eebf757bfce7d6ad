"""Slurm's configuration as ``scontrol show config`` prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner, CompletedCommand

SHOW_CONFIG_COMMAND = ("scontrol", "show", "config")
SlurmConfig = Mapping[str, str]
"""``scontrol show config`` by key; the parts of a list (``Prolog[0]``) are separate keys."""


def ask_config(runner: CommandRunner, timeout_s: float) -> CompletedCommand:
    """Ask slurmctld for its configuration; never raises for what it says."""
    return runner(SHOW_CONFIG_COMMAND, stdin=b"", timeout_s=timeout_s, env=SLURM_ENVIRONMENT)


def config_of(done: CompletedCommand) -> SlurmConfig:
    """The answer by key; empty where slurmctld did not answer."""
    return parse_config(done.stdout.decode("utf-8", "surrogateescape")) if done.status == 0 else {}


def parse_config(text: str) -> SlurmConfig:
    """Keys and values of ``scontrol show config``."""
    pairs = (line.split("=", 1) for line in text.splitlines() if " = " in line or line.rstrip().endswith("="))
    return {key.strip(): value.strip() for key, value in pairs}


def slurm_user_id(config: SlurmConfig) -> int | None:
    """User id of SlurmUser, which Slurm shows as ``slurm(64030)``."""
    match = re.search(r"\((\d+)\)", config.get("SlurmUser", ""))
    return int(match[1]) if match else None


def list_config_values(config: SlurmConfig, key: str) -> Sequence[str]:
    """The values of a key that may be a list; without Slurm's ``(null)``."""
    found = [value for name, value in config.items() if name == key or name.startswith(f"{key}[")]
    return [value for value in found if value not in ("", "(null)")]


def runs_slurmctld(config: SlurmConfig, host: str) -> bool:
    """Whether a host is one of SlurmctldHost, which are shown as ``ctl`` or ``ctl(10.0.0.1)``; domains do not count."""
    names = [value.partition("(")[0] for value in list_config_values(config, "SlurmctldHost")]
    return host.partition(".")[0] in [name.partition(".")[0] for name in names]

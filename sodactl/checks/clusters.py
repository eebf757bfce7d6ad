"""Checks where slurmdbd has several clusters."""

from __future__ import annotations

from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl.checks.check_result import CheckResult

_CHECK = "federation"


def check_federation(config: SlurmConfig) -> CheckResult | None:
    """Whether Slurm's commands show jobs of this cluster alone; nothing where there is no federated view."""
    if "fed_display" not in config.get("FederationParameters", "").split(","):
        return None
    found = "FederationParameters=fed_display: squeue, sprio and sacct show jobs of all clusters of the federation"
    remedy = "take fed_display out of slurm.conf; who wants that view says squeue --federation"
    return CheckResult(_CHECK, "fail", found, remedy)

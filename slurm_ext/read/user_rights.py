"""What Slurm lets one user see of others: PrivateData of slurm.conf, and the user's rights in the accounting database."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.slurm_config import ask_config, config_of, slurm_user_id

PRIVATE_KINDS = frozenset(
    {"accounts", "cloud", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"}
)
"""What PrivateData may name."""

_NAME = re.compile(r"[^\s,=\"'-][^\s,=\"']{0,254}")
_ADMIN_LEVELS = ("Operator", "Administrator")


@dataclass(frozen=True, slots=True)
class SlurmPrivacy:
    """What slurm.conf keeps from users who are neither SlurmUser, root nor operators."""

    private: frozenset[str]
    """The words of PrivateData."""
    slurm_user_id: int | None


@dataclass(frozen=True, slots=True)
class UserRights:
    """Of one user in Slurm's accounting database."""

    is_operator: bool = False
    """AdminLevel Operator or Administrator: nothing is private from him."""
    coordinated_accounts: frozenset[str] = frozenset()
    """Accounts, with those below, that the user coordinates: their jobs are not private from him."""


def read_privacy(runner: CommandRunner, timeout_s: float) -> SlurmPrivacy:
    """PrivateData and SlurmUser.

    Raises:
        SlurmCommandError: slurmctld does not answer.
        SlurmReplyError: the answer does not name them.
    """
    config = config_of(ask_config(runner, timeout_s).check("check that slurmctld answers (scontrol ping)"))
    if "PrivateData" not in config or "SlurmUser" not in config:  # a reply that is cut short must not open anything
        raise SlurmReplyError("scontrol show config names no PrivateData or no SlurmUser; check scontrol")
    private = set(config["PrivateData"].lower().split(",")) - {"none"}
    # Labels, which sodad does not know, hide jobs and nodes.
    if "privatedata" in config.get("MCSParameters", "").lower():
        private |= {"jobs", "nodes"}
    return SlurmPrivacy(PRIVATE_KINDS if "all" in private else frozenset(private), slurm_user_id(config))


def read_user_rights(runner: CommandRunner, user: str, timeout_s: float) -> UserRights:
    """AdminLevel and coordinated accounts of one user; no rights for one whom accounting does not know.

    Raises:
        SlurmCommandError: slurmdbd does not answer, or there is none.
    """
    if not _NAME.fullmatch(user):
        return UserRights()
    argv = ("sacctmgr", "-n", "-P", "show", "user", f"name={user}", "withcoord", "format=user,adminlevel,coordinators")
    done = runner(argv, stdin=b"", timeout_s=timeout_s, env=SLURM_ENVIRONMENT)
    lines = done.check("check slurmdbd (sacctmgr ping)").stdout.decode("utf-8", "surrogateescape").splitlines()
    for name, level, accounts in (words for line in lines if len(words := line.split("|")) == 3):
        if name == user:
            return UserRights(level in _ADMIN_LEVELS, frozenset(accounts.split(",")) - {""})
    return UserRights()

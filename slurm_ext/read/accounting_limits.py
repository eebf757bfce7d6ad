"""Which limits slurmctld enforces, and on whom: ``AccountingStorageEnforce``, partitions' QOS, and slurmdbd's limits.

``scontrol show assoc_mgr`` does not tell a QOS' limits per user and per account before the QOS was used, and tells nobody's
QOS (measured, Slurm 24.11). So the limits themselves are read with sacctmgr: 0.3 s and 0.3 MB for 10 000 associations, where
slurmctld would print 9 MB in 0.65 s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from slurm_soda.policies.cpu_fit.limits import BOUND_TRES, GPU_TRES, Account, AccountingLimits, Association
from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.partition_limits import (
    SHOW_PARTITIONS_COMMAND,
    parse_partition_qos,
)
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.site_guards import list_missing_guards
from slurm_soda.slurm_ext.read.slurm_config import SHOW_CONFIG_COMMAND, SlurmConfig, parse_config

_WITHOUT_LIMITS = frozenset({"none", "associations", "qos", "wckeys", "nojobs", "nosteps", ""})
"""Words of AccountingStorageEnforce with which slurmctld enforces no limits; ``safe`` means ``limits``, too."""

_JOB_LIMITS = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins")
_QOS_LIMITS = (*_JOB_LIMITS, "MaxTRESPU", "MaxTRESPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MinTRES")
_SACCTMGR = ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show")


def enforces_limits(config: SlurmConfig) -> bool:
    """Whether limits of associations and QOS hold. One that knows other words is taken to enforce them."""
    return not _enforced(config) <= _WITHOUT_LIMITS


def show_associations_command(cluster: str) -> tuple[str, ...]:
    """The command for all associations of a cluster."""
    fields = ",".join(("Account", "User", "ParentName", *_JOB_LIMITS, "QOS"))
    return (*_SACCTMGR, "assoc", f"cluster={cluster}", f"format={fields}")


def show_qos_command() -> tuple[str, ...]:
    """The command for all QOS."""
    return (*_SACCTMGR, "qos", f"format={','.join(('Name', *_QOS_LIMITS))}")


@dataclass(frozen=True)
class AccountingLimitsReader:
    """Asks slurmctld, and slurmdbd where limits are enforced, through a runner."""

    runner: CommandRunner
    timeout_s: float = 30.0
    nonce: Callable[[], str] = random_nonce

    def read(self) -> AccountingLimits:
        """What is enforced now.

        Raises:
            SlurmCommandError: slurmctld or slurmdbd does not answer.
            SlurmReplyError: the answer cannot be read.
        """
        config = parse_config(self._ask(SHOW_CONFIG_COMMAND))
        if "AccountingStorageEnforce" not in config or not config.get("ClusterName"):
            raise SlurmReplyError("scontrol show config names no AccountingStorageEnforce or no ClusterName")
        unguarded = next((found.sentence for found in list_missing_guards(config)), "")
        if not enforces_limits(config):
            return AccountingLimits(unguarded=unguarded)
        partition_qos = parse_partition_qos(self._ask(SHOW_PARTITIONS_COMMAND))
        all_qos = self._ask(show_qos_command())
        associations = self._ask(show_associations_command(config["ClusterName"]))
        users, accounts = parse_associations(associations)
        return AccountingLimits(
            enforced=True,
            qos_enforced="qos" in _enforced(config),
            users=users,
            accounts=accounts,
            qos=parse_qos(all_qos),
            qos_gpu=parse_qos(all_qos, GPU_TRES),
            partition_qos=partition_qos,
            unguarded=unguarded,
        )

    def _ask(self, argv: Sequence[str]) -> str:
        framing = ReplyFraming(self.nonce())
        env = {**SLURM_ENVIRONMENT, **framing.env}
        done = self.runner(with_end_mark(argv), stdin=b"", timeout_s=self.timeout_s, env=env)
        answer = done.check("check slurmctld (scontrol ping) and slurmdbd (sacctmgr ping)")
        return framing.body(answer.stdout, " ".join(argv[:5]))


def parse_qos(text: str, bound: Collection[str] = BOUND_TRES) -> dict[str, str]:
    """A limit of each QOS on one of these resources; empty: none.

    Raises:
        SlurmReplyError: a line has another number of fields.
    """
    return {name: _limit(_QOS_LIMITS, limits, bound) for name, *limits in _rows(text, 1 + len(_QOS_LIMITS), "QOS")}


def parse_associations(text: str) -> tuple[dict[str, tuple[Association, ...]], dict[str, Account]]:
    """Associations of each user, and accounts.

    Raises:
        SlurmReplyError: a line has another number of fields.
    """
    users, accounts = dict[str, list[Association]](), dict[str, Account]()
    for account, user, parent, *limits, qos in _rows(text, 4 + len(_JOB_LIMITS), "associations"):
        limit, gpu_limit = _limit(_JOB_LIMITS, limits, BOUND_TRES), _limit(_JOB_LIMITS, limits, GPU_TRES)
        if user:
            names = frozenset(name.lstrip("+-") for name in qos.split(",") if name)
            users.setdefault(user, []).append(Association(account, limit, names, gpu_limit))
        else:
            accounts[account] = Account(parent, limit, gpu_limit)
    return {user: tuple(found) for user, found in users.items()}, accounts


def _rows(text: str, count: int, what: str) -> Iterator[list[str]]:
    for line in filter(None, text.split("\n")):
        row = line.split("|")
        if len(row) != count:
            raise SlurmReplyError(
                f"sacctmgr's list of {what} has a line of {len(row)} fields, not {count}: {line[:60]!r}"
            )
        yield row


def _limit(names: Sequence[str], values: Sequence[str], bound: Collection[str]) -> str:
    """The first limit on one of these resources, as ``GrpTRES=cpu``; on all types of GPUs, where ``gres/gpu`` is one."""
    for name, value in zip(names, values, strict=True):
        for word in value.split(","):
            tres = word.partition("=")[0].strip().lower()
            if tres in bound or tres.partition(":")[0] in bound:
                return f"{name}={tres}"
    return ""


def _enforced(config: SlurmConfig) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in config.get("AccountingStorageEnforce", "").split(","))

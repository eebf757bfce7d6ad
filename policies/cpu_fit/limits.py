"""Limits of accounting that a change by us would lift, and whom they bind.

Slurm marks CPUs or memory of a job that an operator changed as set by an admin, and from then on no limit of an association
or a QOS on them stops that job, not even where the operator takes the change back (measured, ``docs/policies/cpu-fit.md``).
The mark goes with the job where its owner moves it to: to another account, QOS or partition of his. So a job keeps its
request where a limit stands in any place that its owner may move it to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

BOUND_TRES = ("cpu", "mem", "node", "billing")
"""What a change of CPUs and memory may count as."""

GPU_TRES = ("gres/gpu", "billing")
"""What a guest's GPUs would count as, were they its own: limits on them do not see a guest. Types of GPUs count too."""


@dataclass(frozen=True, slots=True)
class Association:
    """A user in an account, perhaps for one partition."""

    account: str
    limit: str = ""
    """A limit on one of :data:`BOUND_TRES`, in slurmdbd's words (``GrpTRESMins=cpu``); empty: there is none."""
    qos: frozenset[str] = frozenset()
    """Which the user may use here."""
    gpu_limit: str = ""
    """As :attr:`limit`, on one of :data:`GPU_TRES`."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account, and the one above it."""

    parent: str = ""
    """Empty: there is none."""
    limit: str = ""
    """As :attr:`Association.limit`."""
    gpu_limit: str = ""
    """As :attr:`Association.gpu_limit`."""


@dataclass(frozen=True, slots=True)
class AccountingLimits:
    """What slurmctld enforces."""

    enforced: bool = False
    """``AccountingStorageEnforce`` has ``limits``; else the rest does not count."""
    qos_enforced: bool = False
    """Users may only use the QOS of their associations; else every one."""
    users: Mapping[str, tuple[Association, ...]] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    qos: Mapping[str, str] = field(default_factory=dict)
    """A limit of each, as :attr:`Association.limit`."""
    qos_gpu: Mapping[str, str] = field(default_factory=dict)
    """A limit of each, as :attr:`Association.gpu_limit`."""
    partition_qos: frozenset[str] = frozenset()
    """QOS of partitions, which bind all jobs in these."""
    unguarded: str = ""
    """What Slurm's settings lack so that guests could be kept apart from others, and the remedy; empty: nothing."""


def binding_limit(limits: AccountingLimits, user: str, account: str, qos: str, *, gpus: bool = False) -> str:
    """What binds a waiting job, or would where its owner may move it to, in words that name nobody; empty: nothing.

    Args:
        limits: of the whole cluster.
        user: the job's owner.
        account: the job's.
        qos: the job's; empty: none.
        gpus: limits on :data:`GPU_TRES` count, and no others.
    """
    if not limits.enforced:
        return ""
    own = limits.users.get(user, ())
    if not own:
        return "its owner has no association that is known"
    of_qos = limits.qos_gpu if gpus else limits.qos
    accounts = {account, *(association.account for association in own)}
    found = [(one.gpu_limit if gpus else one.limit, "its owner's association") for one in own]
    above = (limit for name in accounts for limit in _chain(limits, name, gpus=gpus))
    found += [(limit, "an account of its owner, or one above") for limit in above]
    usable = {qos, *(name for association in own for name in association.qos)} - {""}
    usable |= set() if limits.qos_enforced else of_qos.keys()
    found += [(of_qos.get(name, "an unknown limit"), "a QOS that its owner may use") for name in usable]
    found += [(of_qos.get(name, "an unknown limit"), "the QOS of a partition") for name in limits.partition_qos]
    return next((f"{limit} of {where}" for limit, where in sorted(found) if limit), "")


def _chain(limits: AccountingLimits, account: str, *, gpus: bool) -> Iterator[str]:
    """Limits of an account and those above it."""
    seen = set[str]()
    while account and account not in seen:
        seen.add(account)
        known = limits.accounts.get(account)
        yield "an unknown limit" if known is None else known.gpu_limit if gpus else known.limit
        account = "" if known is None else known.parent

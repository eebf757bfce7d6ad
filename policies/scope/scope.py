"""The scope: jobs that may be changed, by partition, account, QOS and user. All others are only observed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

_WORDS = ("", "partition", "account", "QOS", "user")


class LeftOut(IntEnum):
    """Why a job may not be changed: the first list of the scope that does not name it."""

    NOT = 0
    """It is in scope."""
    PARTITION = 1
    ACCOUNT = 2
    QOS = 3
    USER = 4

    @property
    def word(self) -> str:
        """As people call it."""
        return _WORDS[self]


_NAME = re.compile(r"\w[^\s,;|*?^\[\](){}'\"]*")
"""What Slurm and directories of users call something, such as ``DOMAIN\\user``, ``group:project``."""


def is_plain_name(text: str) -> bool:
    """Whether a list of the scope may have this: no pattern, no list in one text, and nothing that cannot be printed."""
    return _NAME.fullmatch(text) is not None and text.isprintable()


def _same(name: str) -> str:
    return name


@dataclass(frozen=True, slots=True)
class Scope:
    """Lists of names, as in the options of squeue: a job is in scope if each list that is not empty names it."""

    partitions: frozenset[str] = frozenset()
    """A job that waits for several must have all of them named: its place in the queue is one for all."""
    accounts: frozenset[str] = frozenset()
    """Exactly these; accounts below them are others."""
    qos: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()

    @property
    def lists(self) -> Mapping[str, frozenset[str]]:
        """All of them, by their keys in ``[scope]``."""
        return {"partitions": self.partitions, "accounts": self.accounts, "qos": self.qos, "users": self.users}

    @property
    def whole(self) -> bool:
        """Every job is in scope."""
        return not any(self.lists.values())

    def has_all_of(self, partitions: Iterable[str]) -> bool:
        """Every job of these partitions is in scope, whoever's it is."""
        return self.whole or (set(partitions) <= self.partitions and not (self.accounts or self.qos or self.users))

    def leaves_out(
        self, partition: str, account: str, qos: str, user: str, base_of: Callable[[str], str] = _same
    ) -> LeftOut:
        """Why a job is not in scope; :attr:`LeftOut.NOT` if it is.

        Args:
            partition: its partition, or the list of those in which it may start.
            account: its account.
            qos: its quality of service.
            user: its owner.
            base_of: the site's own partition behind one of a pool's.
        """
        if self.partitions and not {base_of(name) for name in partition.split(",")} <= self.partitions:
            return LeftOut.PARTITION
        for names, name, why in (
            (self.accounts, account, LeftOut.ACCOUNT),
            (self.qos, qos, LeftOut.QOS),
            (self.users, user, LeftOut.USER),
        ):
            if names and name not in names:
                return why
        return LeftOut.NOT

"""Who asks for a view, and what Slurm would let him see: PrivateData, operators, coordinators.

Where Slurm has not said yet what is private, everything is.
"""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, or_

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.slurm_ext.command_runner import CommandRunner
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.user_rights import (
    PRIVATE_KINDS,
    SlurmPrivacy,
    UserRights,
    read_privacy,
    read_user_rights,
)

T = TypeVar("T")

MAX_AGE_S = 60.0
"""What Slurm said of privacy and rights holds for so long."""
RETRY_S = 5.0
"""Slurm is asked again so long after it did not answer; until then what it said last holds."""
TIMEOUT_S = 1.5
"""For one question: whoever asks sodad waits 2 s for the answer."""
PRIVATE_WITH_USE = frozenset({"jobs", "usage", "users"})
"""Words of PrivateData with which users are told only of their own jobs what they used."""
MAX_USERS = 1000
"""Users whose rights are remembered."""


class OwnedJob(Protocol):
    """Whose a job is."""

    @property
    def user(self) -> str: ...

    @property
    def account(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user, and what is private from this user."""

    user: str
    private: frozenset[str] = frozenset()
    """Words of PrivateData; none for root, SlurmUser and operators."""
    accounts: frozenset[str] = frozenset()
    """Whose jobs are not private from this user."""

    @property
    def sees_all_jobs(self) -> bool:
        """Jobs are nobody's secret, or none from this user."""
        return "jobs" not in self.private

    def may_see(self, job: OwnedJob) -> bool:
        """Whether Slurm would show this user the job."""
        return self.sees_all_jobs or job.user == self.user or job.account in self.accounts

    def visible_jobs(self) -> ColumnElement[bool] | None:
        """The same as a condition of a query; ``None``: every job."""
        if self.sees_all_jobs:
            return None
        return or_(Job.user == self.user, Job.account.in_(sorted(self.accounts)))

    def may_see_use(self, job: OwnedJob) -> bool:
        """Whether Slurm would tell this user what the job used."""
        return not self.private & PRIVATE_WITH_USE or job.user == self.user or job.account in self.accounts

    def jobs_of_visible_use(self) -> ColumnElement[bool] | None:
        """The same as a condition of a query; ``None``: every job."""
        if not self.private & PRIVATE_WITH_USE:
            return None
        return or_(Job.user == self.user, Job.account.in_(sorted(self.accounts)))


class ViewerRights:
    """What each user may see, as Slurm said a minute ago at most."""

    def __init__(self, runner: CommandRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._privacy = _Remembered(SlurmPrivacy(PRIVATE_KINDS, None))
        self._rights: dict[str, _Remembered[UserRights]] = {}
        self._no_rights_before_s = float("-inf")

    def read_privacy(self, timeout_s: float = TIMEOUT_S) -> SlurmPrivacy:
        """What is private, asked of Slurm where it is not known or old."""
        return self._privacy.current(self._clock.elapsed_s(), lambda: read_privacy(self._runner, timeout_s))

    def viewer(self, uid: int) -> Viewer:
        """The user of this id. May ask Slurm, so not for the event loop; one call at a time."""
        user = user_name(uid)
        if uid in (0, os.getuid()):
            return Viewer(user)
        privacy = self.read_privacy()
        if not privacy.private or uid == privacy.slurm_user_id:
            return Viewer(user)
        rights = self._current_rights(user)
        return Viewer(user) if rights.is_operator else Viewer(user, privacy.private, rights.coordinated_accounts)

    def _current_rights(self, user: str) -> UserRights:
        """Of one user; slurmdbd that does not answer for one is not asked for the next."""
        now_s = self._clock.elapsed_s()
        known = self._rights.pop(user, None) or _Remembered(UserRights())
        self._rights[user] = known
        if len(self._rights) > MAX_USERS:
            del self._rights[next(iter(self._rights))]
        if now_s < self._no_rights_before_s:
            return known.value
        rights = known.current(now_s, lambda: read_user_rights(self._runner, user, TIMEOUT_S))
        if known.failed:
            self._no_rights_before_s = now_s + RETRY_S
        return rights


class _Remembered(Generic[T]):
    """What Slurm said last; before it said anything, a value that opens nothing."""

    def __init__(self, value: T) -> None:
        self.value, self.failed, self._until_s = value, False, float("-inf")

    def current(self, now_s: float, read: Callable[[], T]) -> T:
        """The value, asked for anew where it is old."""
        if now_s >= self._until_s:
            try:
                self.value, self.failed = read(), False
            except SlurmError as error:
                if not self.failed:
                    log(logging.WARNING, "rights-not-known", error=error)
                self.failed = True
            self._until_s = now_s + (RETRY_S if self.failed else MAX_AGE_S)
        return self.value


def user_name(uid: int) -> str:
    """Name of a user; the number where this host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

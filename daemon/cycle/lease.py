"""The right to send: a daemon epoch that no newer one has superseded, with a heartbeat that is not too old.

Whoever finds the heartbeat old takes the lifts back (``sodactl release-lifts``) and begins an epoch of its own, if it can
write to the store. A daemon that was paused meanwhile must not go on where it stood. So it looks at two things before each
chunk of changes: at the store, for a newer epoch, and at a clock that never jumps, in case nobody could write one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import event
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.cycle.epoch import DaemonEpoch
from slurm_soda.daemon.store.engine import Store
from slurm_soda.slurm_ext.errors import SodaError

_RENEW_AFTER = 0.1
"""Share of the lease after which a heartbeat is written again."""

_SEND_WITHIN = 5 / 6
"""Share of the lease within which a daemon sends. The rest is for the chunk that is under way when it ends."""


class LeaseLapsedError(SodaError):
    """This daemon wrote no heartbeat for so long that its lifts may have been taken back; what it decided is void."""


@dataclass(slots=True)
class Lease:
    """One daemon's right to send."""

    store: Store
    daemon_epoch: DaemonEpoch
    clock: Clock
    duration_s: float
    """A heartbeat of this age is that of a dead daemon."""
    on_heartbeat: Callable[[], None] = lambda: None
    """Called after each heartbeat that the store has taken."""
    command_s: float = 60.0
    """Longest command that changes Slurm."""
    _renewed_s: float = field(init=False)
    """By this host's clock, before the store was asked: so its lease ends first."""
    _promised_s: float = field(init=False)
    """The lease that the last heartbeat in the store promises."""

    def __post_init__(self) -> None:
        self._renewed_s = self.clock.elapsed_s()
        self._promised_s = self.duration_s

    @property
    def take_over_after_s(self) -> float:
        """How long others must wait after the last heartbeat."""
        return self.duration_s + self.command_s

    def renew(self) -> None:
        """Write a heartbeat unless there is a fresh one. Only where nothing is under way that an older lease covers.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        if self._is_due():
            with self.store.write() as session:
                self.write_heartbeat(session)

    def renew_within(self, session: Session) -> None:
        """:meth:`renew` in a transaction of the caller's, which belongs to this daemon in any case.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        if self._is_due():
            self.write_heartbeat(session)
        else:
            self.daemon_epoch.check(session)

    def write_heartbeat(self, session: Session) -> None:
        """Renew the lease in a transaction of the caller's.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        self.daemon_epoch.check(session)
        # Not after the commit, which may be long in coming.
        at_s, promised_s = self.clock.elapsed_s(), self.duration_s

        def committed(_session: Session) -> None:
            self._renewed_s, self._promised_s = at_s, promised_s
            self.on_heartbeat()

        self.daemon_epoch.write_heartbeat(session, self.clock.now_s())
        if promised_s != self._promised_s:
            self.daemon_epoch.promise(session, self.take_over_after_s)
        event.listen(session, "after_commit", committed, once=True)

    def check(self) -> None:
        """Before each chunk of changes: make sure that this daemon may still send what it decided.

        Raises:
            SupersededError: a newer daemon has taken over, or somebody took the lifts back.
            LeaseLapsedError: it was paused too long.
        """
        self.check_age()
        self.renew()
        with self.store.read() as session:
            self.daemon_epoch.check(session)
        self.check_age()  # a store that was long in answering told of the past

    def check_age(self) -> None:
        """The part of :meth:`check` that needs no store.

        Raises:
            LeaseLapsedError: this daemon was paused too long.
        """
        if self._age_s() >= _SEND_WITHIN * min(self.duration_s, self._promised_s):
            raise LeaseLapsedError(
                f"this sodad was {self._age_s():.0f} s without a heartbeat, and its lifts last {self.duration_s:.0f} s: "
                "what it decided before is not sent; it begins anew"
            )

    def _is_due(self) -> bool:
        return self._age_s() >= _RENEW_AFTER * self.duration_s

    def _age_s(self) -> float:
        return self.clock.elapsed_s() - self._renewed_s

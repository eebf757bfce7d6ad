"""The right to send: a daemon epoch that no newer one has superseded, with a heartbeat that is not too old.

Whoever finds the heartbeat old takes the lifts back (``sodactl release-lifts``) and begins an epoch of its own, if it can
write to the store. A daemon that was paused meanwhile must not go on where it stood. So it looks at two things before each
chunk of changes: at the store, for a newer epoch, and at a clock that never jumps, in case nobody could write one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlalchemy import event
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.cycle.epoch import DaemonEpoch
from slurm_soda.daemon.cycle.slurm_access import command_timeouts
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.write.sending import CHUNK_UPDATES

_KEEP_WITHIN_S = 300.0
"""A cycle that goes on for longer than this renews its lease no more: it is taken to hang. The watchdog of ``sodad.service``
waits as long; five reads of Slurm that each take their whole time limit (20 s) are done by then."""

_RENEW_AFTER = 0.1
"""Share of the lease after which a heartbeat is written again."""

_RENEW_WITHIN_S = 7.5
"""However long the lease: `status` takes a sodad for dead whose heartbeat is older than half a minute, and what takes lifts
back without Python one whose lock was not dated for as long as the usual lease; the timer looks only after 10 s."""

SEND_WITHIN = 5 / 6
"""Share of the lease within which a daemon sends. The rest is for the chunk that is under way when it ends."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long a daemon may send after a heartbeat, and how long others must wait after it."""

    duration_s: float
    """A heartbeat of this age is that of a dead daemon."""
    command_s: float
    """Longest time that a change of Slurm takes which was begun within the lease."""

    @classmethod
    def of(cls, settings: Settings) -> LeaseTiming:
        """As the configuration has it."""
        return cls(settings.cycle.lease_s, command_timeouts(settings.slurm).longest_change_s(CHUNK_UPDATES))

    @property
    def take_over_after_s(self) -> float:
        """How long others must wait after the last heartbeat: then no command of this daemon is under way."""
        return self.duration_s + self.command_s


class LeaseLapsedError(SodaError):
    """This daemon wrote no heartbeat for so long that its lifts may have been taken back; what it decided is void."""


@dataclass(slots=True)
class Lease:
    """One daemon's right to send."""

    store: Store
    daemon_epoch: DaemonEpoch
    clock: Clock
    timing: LeaseTiming
    renewed_s: float
    """The last heartbeat, or the beginning of the epoch, by this host's clock before the store was asked: so its lease ends
    no later than others see it end."""
    on_heartbeat: Callable[[], None] = lambda: None
    """Called after each heartbeat that the store has taken."""
    _promised: LeaseTiming = field(init=False)
    """What the last heartbeat in the store promises."""
    _began_s: float = field(init=False)
    """When nothing was under way that an older lease covers."""

    def __post_init__(self) -> None:
        self._promised, self._began_s = self.timing, self.renewed_s

    def use(self, duration_s: float) -> None:
        """Another duration holds from the next heartbeat on."""
        self.timing = replace(self.timing, duration_s=duration_s)

    def renew(self) -> None:
        """Write a heartbeat unless there is a fresh one. Only where nothing is under way that an older lease covers.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        self._began_s = self.clock.elapsed_s()
        if self._is_due():
            with self.store.write() as session:
                self.write_heartbeat(session)

    def keep(self) -> None:
        """Renew within a cycle, between commands: those that a slow slurmctld answers can outlast a lease.

        Only the thread of the cycle may call this, so that a cycle that hangs loses its lease. One that goes on for too long
        loses it as well.

        Raises:
            SupersededError: a newer daemon has taken over.
            LeaseLapsedError: this daemon was paused too long: what it has read is void.
        """
        if self.clock.elapsed_s() - self._began_s <= _KEEP_WITHIN_S:
            self._extend()

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
        at_s, promised = self.clock.elapsed_s(), self.timing

        def committed(_session: Session) -> None:
            self.renewed_s, self._promised = at_s, promised
            self.on_heartbeat()

        self.daemon_epoch.write_heartbeat(session, self.clock.now_s())
        if promised != self._promised:
            self.daemon_epoch.promise(session, promised.take_over_after_s)
        event.listen(session, "after_commit", committed, once=True)

    def check(self, also: Callable[[Session], None] = lambda _session: None) -> None:
        """Before each chunk of changes: make sure that this daemon may still send what it decided.

        Args:
            also: looks at what else must still hold, and raises what it will if that is not so.

        Raises:
            SupersededError: a newer daemon has taken over, or somebody took the lifts back.
            LeaseLapsedError: it was paused too long.
        """
        self._extend()
        with self.store.read() as session:
            self.daemon_epoch.check(session)
            also(session)
        self.check_age()  # a store that was long in answering told of the past

    def check_age(self) -> None:
        """The part of :meth:`check` that needs no store.

        Raises:
            LeaseLapsedError: this daemon was paused too long.
        """
        lasts_s = min(self.timing.duration_s, self._promised.duration_s)
        if self._age_s() >= SEND_WITHIN * lasts_s:
            raise LeaseLapsedError(
                f"this sodad was {self._age_s():.0f} s without a heartbeat, and its lifts last {lasts_s:.0f} s: "
                "what it decided before is not sent; it begins anew"
            )

    def _extend(self) -> None:
        """Renew a lease that has not lapsed."""
        self.check_age()
        if self._is_due():
            with self.store.write() as session:
                self.check_age()  # others may have had the store for long
                self.write_heartbeat(session)

    def _is_due(self) -> bool:
        return self._age_s() >= min(_RENEW_AFTER * self.timing.duration_s, _RENEW_WITHIN_S)

    def _age_s(self) -> float:
        return self.clock.elapsed_s() - self.renewed_s

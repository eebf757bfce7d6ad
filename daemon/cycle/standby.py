"""Waiting to lead: a sodad that finds another controller's daemon in a shared store takes over when that one is gone.

It asks the store every two seconds. Nothing else runs meanwhile: no cycle, and no address for agents, who ask the next
controller of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.cycle.epoch import AnotherDaemonError, Leader, begin_epoch, find_leader
from slurm_soda.daemon.cycle.lease import Lease, LeaseTiming
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.server import store_now_s
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.tables.scheduling import Epoch, Standby

POLL_S = 2.0
"""Longest time between two looks at the store."""

SHOW_EVERY_S = 10.0
"""How often a waiting sodad shows in the store that it lives."""


@dataclass(slots=True)
class LeadershipClaim:
    """One sodad's way to its lease."""

    store: Store
    clock: Clock
    host: str
    state_dir: str
    pid: int
    version: str
    timing: LeaseTiming
    on_heartbeat: Callable[[], None] = lambda: None
    """Called at each new heartbeat of a leader that has not ended, this one or another."""
    _seen: tuple[int, float] | None = field(default=None, init=False)
    """Epoch and heartbeat of the leader when it was last seen to do something."""
    _seen_s: float = field(default=0.0, init=False)
    _shown_s: float = field(default=float("-inf"), init=False)
    _failing: bool = field(default=False, init=False)

    def begin(self) -> Lease:
        """Begin an epoch now; its lease counts from before others can see it.

        Raises:
            AnotherDaemonError: another controller leads, or may still have changes on their way.
        """
        asked_s = self.clock.elapsed_s()
        epoch = begin_epoch(
            self.store,
            host=self.host,
            pid=self.pid,
            version=self.version,
            now_s=self.clock.now_s(),
            state_dir=self.state_dir,
            take_over_after_s=self.timing.take_over_after_s,
            watched_s=self._watched_s,
        )
        self.leave()
        return Lease(self.store, epoch, self.clock, self.timing, asked_s, self.on_heartbeat)

    def try_begin(self) -> Lease | None:
        """Take over if the time has come; otherwise show that this one waits. A store that fails is asked again later."""
        try:
            with self.store.read() as session:
                leader = find_leader(session, self.clock.now_s())
            if leader is not None and self._must_wait(leader):
                self._show()
                return None
            return self.begin()
        except AnotherDaemonError:
            return None
        except (SQLAlchemyError, StoreError) as error:
            self._complain(error)
            return None

    def leader_text(self) -> str:
        """Whom this one waits for, for people."""
        return "standby: waits for the store" if self._failing else "standby: another sodad leads"

    def leave(self) -> None:
        """Wait no longer."""
        try:
            with self.store.write() as session:
                row = session.get(Standby, (self.host, self.state_dir))
                if row is not None:
                    session.delete(row)
        except (SQLAlchemyError, StoreError) as error:
            self._complain(error)

    def _must_wait(self, leader: Leader) -> bool:
        """Whether the leader may still act, or have acted a moment ago; remembers what it showed."""
        self._failing = False
        seen = (leader.epoch.id, leader.epoch.heartbeat_s)
        if seen != self._seen:
            self._seen, self._seen_s = seen, self.clock.elapsed_s()
            if leader.epoch.ended_s is None:
                self.on_heartbeat()  # at each heartbeat and not after the last, so that lifts end here as soon as there
        return leader.remaining_s(self.host, self.state_dir, self._watched_s(leader.epoch)) > 0

    def _watched_s(self, leader: Epoch) -> float:
        """How long the leader has shown nothing new, by a clock that never jumps."""
        return self.clock.elapsed_s() - self._seen_s if (leader.id, leader.heartbeat_s) == self._seen else 0.0

    def _show(self) -> None:
        now_s = self.clock.elapsed_s()
        if now_s - self._shown_s < SHOW_EVERY_S:
            return
        with self.store.write() as session:
            seen_s = store_now_s(session, self.clock.now_s())
            session.merge(
                Standby(host=self.host, state_dir=self.state_dir, pid=self.pid, version=self.version, seen_s=seen_s)
            )
        self._shown_s = now_s

    def _complain(self, error: SQLAlchemyError | StoreError) -> None:
        """Once an outage."""
        if not self._failing:
            told = error if isinstance(error, StoreError) else self.store.error_of(error)
            log(logging.WARNING, "standby-without-store", error=told)
        self._failing = True

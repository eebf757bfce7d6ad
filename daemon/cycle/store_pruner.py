"""Drops what the store has kept long enough, between cycles and a little at a time."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.retention import PRUNED_TABLES, delete_rows, find_old_rows
from slurm_soda.daemon.store.store_errors import StoreError

DAY_S = 86_400.0

KEEP_IDLE_CYCLES_S = DAY_S
"""Cycles that changed nothing are kept this long."""

PRUNE_EVERY_S = 600.0
"""Pause after all tables were looked through."""

PRUNE_WITHIN_S = 0.1
"""One cycle's share; the rest waits for the next."""


@dataclass(slots=True)
class StorePruner:
    """Goes through the store again and again, for one daemon epoch."""

    context: DaemonContext
    _began: Instant = field(init=False)
    _next_s: float = float("-inf")
    """By the steady clock."""
    _table: int = 0
    _after_id: int = 0

    def __post_init__(self) -> None:
        self._began = Instant.read(self.context.clock)

    def step(self, keep_days: float) -> None:
        """Drop what is old, for a moment. What goes wrong is logged, and tried again later.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        at = Instant.read(self.context.clock)
        if at.steady_s < self._next_s:
            return
        try:
            while self.context.clock.elapsed_s() < at.steady_s + PRUNE_WITHIN_S:
                if not self._prune_some(self._today_s(at), keep_days):
                    self._next_s = at.steady_s + PRUNE_EVERY_S
                    return
        except (SQLAlchemyError, StoreError) as error:
            self._next_s = at.steady_s + PRUNE_EVERY_S
            reason = error if isinstance(error, StoreError) else self.context.store.error_of(error)
            log(logging.WARNING, "not-pruned", error=reason)

    def _today_s(self, at: Instant) -> float:
        """Unix seconds that nobody can move ahead: a clock that is set to some later year must not cost the audit trail."""
        return min(at.now_s, self._began.wall(at.steady_s))

    def _prune_some(self, now_s: float, keep_days: float) -> bool:
        """Look at the next rows; false where that was the end of the last table."""
        table, store = PRUNED_TABLES[self._table], self.context.store
        before_s, idle_s = now_s - keep_days * DAY_S, now_s - KEEP_IDLE_CYCLES_S
        with store.read() as session:
            old = find_old_rows(session, table, self._after_id, before_s=before_s, idle_before_s=idle_s)
        if old.ids:
            with store.write() as session:
                self.context.lease.daemon_epoch.check(session)
                delete_rows(session, table, old.ids)
        if old.last_id is not None:
            self._after_id = old.last_id
            return True
        self._table, self._after_id = (self._table + 1) % len(PRUNED_TABLES), 0
        return self._table > 0

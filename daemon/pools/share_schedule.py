"""Shares derived anew by schedule: what ``sodactl pools apply`` does, by sodad itself, once a day.

A share moves by one bounded step at most, and not at all for little differences
(:mod:`slurm_soda.policies.pools.layout.shares`).
Waiting jobs stay in the partitions that they are in, whose nodes and cores change under them; those that can no longer start
there are routed anew, or go back to the site's own. A change that was cut short is finished, and partitions that go are
deleted when their last job has ended.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.epoch import SupersededError
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.pools import pool_plan
from slurm_soda.daemon.scope.jobs_in_scope import scope_of
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.policies.pools.layout.partitions import describe_node_class
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.pools.pool_installer import PoolInstaller
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord, read_record
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from slurm_soda.slurm_ext.write.sending import SendRecorded

CHANGED_BY = "sodad"
"""By whom pools are changed, in their record."""
RESUME_AFTER_S = 300.0
"""So long after it began a change that is not done was cut short; whoever makes one holds a lock besides."""


@dataclass(slots=True)
class ShareSchedule:
    """Derives the shares anew when they are due; only pools that somebody has applied."""

    context: DaemonContext
    partitions: ScontrolPartitions
    host: str
    send: SendRecorded
    """How waiting jobs are moved."""
    _tried_s: float = float("-inf")
    _held_back: bool = False
    """The change limits held moves of waiting jobs back, which may go now."""

    def step(self, settings: Settings, *, enforces: bool) -> bool:
        """Do what is due; whether anything in Slurm was changed. What goes wrong is logged, and tried a period later.

        Raises:
            SupersededError: a newer daemon has taken over; nothing more was sent.
        """
        every_s, at = settings.pools.rederive_s, Instant.read(self.context.clock)
        if not enforces or every_s <= 0:
            return False
        if not self._held_back and at.steady_s < self._tried_s + min(RESUME_AFTER_S, every_s):
            return False
        try:
            record = read_record(Path(settings.state_dir))
            if record is None or record.phase == "reverting":
                return False
            after_s = min(RESUME_AFTER_S, every_s) if record.phase == "applying" else every_s
            changed = 0 <= at.now_s - record.changed_s < after_s  # a change of the future: the clock was set back since
            if not self._held_back and (changed or at.steady_s < self._tried_s + after_s):
                return False
            self._tried_s = at.steady_s
            unfinished = record.phase == "applying" or self._held_back
            self._held_back = False
            # Else it would move waiting jobs that are not in scope.
            may = unfinished or scope_of(settings.scope).has_all_of(record.bases)
            return may and self._derive(settings, record, at.now_s, unfinished=unfinished)
        except SupersededError:
            raise
        except Exception as error:  # noqa: BLE001 - a daemon outlives its mistakes, and jobs do not depend on this one
            self._tried_s = at.steady_s
            log(logging.WARNING, "shares-not-derived", error=error)
            if not isinstance(error, SodaError | OSError):
                LOGGER.exception("unexpected")
            return False

    def _derive(self, settings: Settings, record: PoolsRecord, now_s: float, *, unfinished: bool) -> bool:
        self.context.lease.renew()
        # A change takes many commands, each of which a sodad that was superseded meanwhile must not begin.
        port = replace(self.partitions, check=self.context.lease.check)
        view = pool_plan.read_site_state(self.context.client, port)
        named = settings.pools.model_copy(update={"partitions": list(record.bases)})
        divided = settings.model_copy(update={"pools": named})
        past: list[PastPoolJob] = []  # shares that are not in force yet do not move
        if not unfinished:
            with self.context.store.read() as session:
                past = pool_plan.read_past_pool_jobs(session, view, divided, now_s)
        plan = pool_plan.plan_pools(view, divided, past, record, host=self.host)
        if plan.obstacles:
            first = plan.obstacles[0]
            log(logging.WARNING, "shares-not-derived", error=f"{first.check}: {first.found}; {first.remedy}")
            return False
        if plan.wanted.shares == record.shares and not unfinished and not record.leaving:
            return False
        self.context.lease.check()
        context, state_dir = self.context, Path(settings.state_dir)
        arranger = PoolInstaller(context.client, port, state_dir, context.clock.now_s, CHANGED_BY, self.send)
        outcome = arranger.apply(replace(plan.wanted, include_path=Path(record.include_path)))
        self._held_back = bool(outcome.held_back)
        shares = {
            describe_node_class(c): (share.cpu_cores, share.large_nodes) for c, share in plan.wanted.shares.items()
        }
        log(
            logging.INFO,
            "shares-derived",
            changed=len(outcome.steps),
            moved=len(outcome.moved),
            held_back=outcome.held_back,
            shares=shares,
        )
        for problem in outcome.problems:
            log(logging.WARNING, "shares-not-derived", error=problem)
        return bool(outcome.steps or outcome.moved)

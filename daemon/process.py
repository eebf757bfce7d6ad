"""One process of ``sodad``: it waits to lead, and runs the loop around the cycles."""

from __future__ import annotations

import gc
import logging
import math
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.server import check_address, make_api_server
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cpu_fit.multi_node_search import MultiNodeSearches, search_rules
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.cycle.active_controller import ActiveController
from slurm_soda.daemon.cycle.cycle import CycleRunner
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.epoch import AnotherDaemonError, HostLock
from slurm_soda.daemon.cycle.lease import Lease, LeaseTiming
from slurm_soda.daemon.cycle.recorder import CycleReport
from slurm_soda.daemon.cycle.signal_flags import SignalFlags
from slurm_soda.daemon.cycle.slurm_access import (
    KeepingRunner,
    close_slurm_client,
    make_accounting_query,
    make_limits_query,
    make_partition_client,
    make_past_runs_query,
    make_slurm_client,
    reading_problems,
)
from slurm_soda.daemon.cycle.standby import POLL_S, LeadershipClaim
from slurm_soda.daemon.cycle.store_cluster import check_cluster, read_cluster_name
from slurm_soda.daemon.cycle.wake import WakeEvent
from slurm_soda.daemon.learning.accounting_past import AccountingPast
from slurm_soda.daemon.logs import log, set_up_logging
from slurm_soda.daemon.metrics.site_metrics import begin_metrics
from slurm_soda.daemon.page.endpoint import bind_page
from slurm_soda.daemon.pools.share_schedule import ShareSchedule
from slurm_soda.daemon.settings.restart import changed_for_restart, restart_problems
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.policies.errors import PolicyError
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.systemd import SystemdNotifier

MIN_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
"""A loop that events keep awake rests as long as its last cycle took, up to this: slurmctld has others to serve."""
TIDY_EVERY_S = 3600.0
"""After the first cycle, and then so often, what lasts is set aside from garbage collection."""


@dataclass(slots=True)
class SodadProcess:
    """One process of sodad: it waits to lead, and leads."""

    settings: Settings
    read_settings: Callable[[], Settings]
    """Reads the configuration again."""
    once: bool
    """One cycle, and no more."""
    store: Store
    lock: HostLock
    clock: SystemClock
    notifier: SystemdNotifier
    waker: WakeEvent
    signals: SignalFlags

    def lead(self) -> Lease | None:
        """Begin an epoch, after another controller's daemon is gone; ``None``: it was told to stop first.

        Raises:
            AnotherDaemonError: the store is a file, which no other controller should have, or only one cycle is wanted.
            OtherClusterError: whoever leads is another cluster's.
        """
        settings = self.settings
        claim = LeadershipClaim(
            self.store, self.clock, socket.gethostname(), settings.state_dir, os.getpid(), version("slurm-soda"),
            LeaseTiming.of(settings), self._note_heartbeat,
        )  # fmt: skip
        try:
            return claim.begin()
        except AnotherDaemonError as error:
            if self.once or not self.store.is_shared:
                raise
            check_cluster(self.store, read_cluster_name(LocalCommandRunner(), settings.slurm.read_timeout_s))
            check_address(settings.api)  # what is wrong here is said now, not when Slurm needs this controller
            self.signals.listen()
            log(logging.INFO, "waiting", pid=os.getpid(), because=error)
        self.notifier.ready()
        lease = None
        poll_s = min(POLL_S, settings.cycle.interval_s)
        while not self.signals.stop and (lease := claim.try_begin()) is None:
            self.notifier.status(claim.leader_text())
            self.waker.wait(poll_s, poll_s, alive=self.notifier.alive)
            self.notifier.alive()
            self._reload()
            claim.timing = LeaseTiming.of(self.settings)
        if lease is None:
            claim.leave()
        return lease

    def _note_heartbeat(self) -> None:
        """Date the lock and tell the watchdog."""
        self.lock.touch()
        self.notifier.alive()

    def run(self, lease: Lease) -> int:
        """Lead until told to stop; the exit status.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        settings, store, clock = self.settings, self.store, self.clock
        log(
            logging.INFO,
            "started",
            epoch=lease.daemon_epoch.epoch_id,
            mode=settings.mode,
            policy=settings.policy.name,
            store=store.url,
        )
        accounting_lookup = AccountingLookup(
            make_accounting_query(settings.slurm, settings.sharing.gres), settings.slurm.accounting_interval_s
        )
        limits_lookup = LimitsLookup(make_limits_query(settings.slurm))
        runner = KeepingRunner(LocalCommandRunner(), lease.keep)
        active = ActiveController(runner, clock, settings.slurm.read_timeout_s, settle_s=lease.timing.take_over_after_s)
        reason_to_observe = str if store.is_shared else active.reason_to_observe
        client = make_slurm_client(settings.slurm, runner, settings.sharing.gres)
        name = partial(read_cluster_name, runner, settings.slurm.read_timeout_s)
        past = AccountingPast(
            None if self.once else make_past_runs_query(settings.slurm, settings.sharing.gres),
            settings.slurm.accounting_past_days,
        )
        context = DaemonContext(
            store,
            client,
            lease,
            clock,
            accounting_lookup,
            limits_lookup,
            reason_to_observe,
            name,
            accounting_past=past,
        )
        cycles = CycleRunner(settings, context)
        try:
            if self.once:
                report = cycles.run()
                _log_cycle(report, self.notifier)
                return 1 if report.error else 0
            self._loop(cycles, context)
        finally:
            cycles.close()
            close_slurm_client(client)
        log(logging.INFO, "stopped", epoch=lease.daemon_epoch.epoch_id)
        return 0

    def _loop(self, cycles: CycleRunner, context: DaemonContext) -> None:
        store, clock, lease, notifier, waker = self.store, self.clock, context.lease, self.notifier, self.waker
        self.signals.listen()
        searches = MultiNodeSearches(search_rules(cycles.settings.cpu_fit))
        metrics = begin_metrics(context, lambda: cycles.settings)
        page = bind_page(cycles.settings.page)
        writer = ReportWriter(
            store,
            clock,
            on_close=waker.call,
            gangs=searches,
            guests=context.guests,
            bandwidths=context.bandwidths,
            nodes=context.reporting_nodes,
            on_report=metrics.on_report,
        )
        started = self.settings

        def problems() -> tuple[str, ...]:
            of_parts = (*writer.problems(), *metrics.problems, *page.problems, *reading_problems(context.client))
            return (*of_parts, *restart_problems(started, cycles.settings))

        cycles.problems, cycles.on_cycle = problems, metrics.on_cycle
        context.services.wake = waker.call
        server = make_api_server(
            store, clock, writer, lambda: cycles.settings, lambda: cycles.last_error, services=context.services,
            metrics=metrics.endpoint, page=page.socket,
        )  # fmt: skip
        shares = ShareSchedule(
            context,
            make_partition_client(cycles.settings.slurm, lease.keep),
            socket.gethostname(),
            cycles.actor.send_outside_plan,
        )

        def alive() -> None:
            notifier.alive()
            with suppress(SQLAlchemyError, StoreError):  # the next cycle says what is wrong with the store
                lease.renew()

        tidy_s = -math.inf
        try:
            server.start()
            notifier.ready()
            while not self.signals.stop:
                began_s = clock.elapsed_s()
                report = cycles.run()
                _log_cycle(report, notifier)
                if not report.error and began_s >= tidy_s:
                    set_aside_lasting_objects()
                    tidy_s = began_s + TIDY_EVERY_S
                shares.step(cycles.settings, enforces=report.acts)
                rest_s = min(clock.elapsed_s() - began_s, MAX_PAUSE_S)
                sleep_s = max(report.pause_s - (clock.elapsed_s() - began_s), MIN_PAUSE_S)
                if not self.signals.stop:
                    waker.wait(sleep_s, max(cycles.settings.cycle.debounce_s, rest_s), alive=alive)
                if self._reload():
                    use_settings(self.settings, cycles, searches)
        finally:
            server.close()
            writer.close()

    def _reload(self) -> bool:
        """Read the configuration again if a signal asked for that; whether it is another now."""
        if not self.signals.reload:
            return False
        self.signals.reload = False
        try:
            settings = self.read_settings()
        except (SodaError, PolicyError) as error:
            log(logging.ERROR, "not-reloaded", error=error)
            return False
        set_up_logging(settings.log_level)
        if keys := changed_for_restart(self.settings, settings):
            log(logging.WARNING, "restart-needed", keys=",".join(keys))
        self.settings = settings
        log(logging.INFO, "reloaded", mode=settings.mode, policy=settings.policy.name)
        return True


def set_aside_lasting_objects() -> None:
    """Spare Python's garbage collector what lasts, such as jobs and what is known of pairs: else it looks through all of it
    every few cycles (0.3 s for 10 000 jobs and 60 000 values). What has come to an end since the last time is collected.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def use_settings(settings: Settings, cycles: CycleRunner, searches: MultiNodeSearches) -> None:
    """Go on by another configuration, as far as it can change while sodad runs."""
    cycles.reload(settings)
    searches.rules = search_rules(settings.cpu_fit)


def _log_cycle(report: CycleReport, notifier: SystemdNotifier) -> None:
    """One log line a cycle: at info if anything happened."""
    timings = {part.replace(".", "_") + "_s": taken_s for part, taken_s in report.timings_s.items() if "." not in part}
    log(
        logging.INFO if report.sent else logging.DEBUG,
        "cycle",
        mode=report.mode,
        pending=report.pending,
        running=report.running,
        planned=report.planned,
        sent=report.sent,
        **timings,
    )
    notifier.status(report.error or f"{report.mode}: {report.pending} jobs wait, {report.running} run")

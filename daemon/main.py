"""``sodad``: the command line and the loop around the cycles."""

from __future__ import annotations

import argparse
import gc
import logging
import math
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.server import check_address, make_api_server
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.config import CONFIG_FILE, MODES, Settings, load_settings
from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cpu_fit.multi_node_search import MultiNodeSearches, search_rules
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.cycle.active_controller import ActiveController
from slurm_soda.daemon.cycle.cycle import CycleRunner
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.cycle.effective_settings import effective_settings
from slurm_soda.daemon.cycle.epoch import AnotherDaemonError, HostLock, SupersededError
from slurm_soda.daemon.cycle.lease import Lease, LeaseTiming
from slurm_soda.daemon.cycle.recorder import CycleReport
from slurm_soda.daemon.cycle.release_stamp import forget_release
from slurm_soda.daemon.cycle.signal_flags import SignalFlags
from slurm_soda.daemon.cycle.slurm_access import (
    KeepingRunner,
    close_slurm_client,
    make_accounting_query,
    make_limits_query,
    make_partition_client,
    make_slurm_client,
    reading_problems,
)
from slurm_soda.daemon.cycle.standby import POLL_S, LeadershipClaim
from slurm_soda.daemon.cycle.store_cluster import check_cluster, read_cluster_name
from slurm_soda.daemon.cycle.wake import WakeEvent
from slurm_soda.daemon.logs import log, set_up_logging
from slurm_soda.daemon.metrics.site_metrics import begin_metrics
from slurm_soda.daemon.page.endpoint import bind_page
from slurm_soda.daemon.pools.share_schedule import ShareSchedule
from slurm_soda.daemon.store.engine import Store, open_store, store_path
from slurm_soda.daemon.store.preparation import prepare_store
from slurm_soda.daemon.store.restore import restore_store
from slurm_soda.daemon.store.store_errors import StoreError, StoreMissingError, StoreUnusableError
from slurm_soda.policies.errors import PolicyError
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.systemd import SystemdNotifier

EXIT_ERROR = 1
EXIT_REFUSED = 3
"""Another sodad is active: a restart would be refused as well."""
EXIT_SUPERSEDED = 4
"""Another sodad has taken over, or this one was silent for so long that its lifts were taken back: a restart tells."""
EXIT_STORE_UNUSABLE = 5
"""The store is lost, damaged, of another program or of a newer version, which no restart mends: systemd does not try one
(``RestartPreventExitStatus``)."""

MIN_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
"""A loop that events keep awake rests as long as its last cycle took, up to this: slurmctld has others to serve."""
TIDY_EVERY_S = 3600.0
"""After the first cycle, and then so often, what lasts is set aside from garbage collection."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run sodad; gives the exit status: 0 after a clean stop, 3 if another sodad is active, 4 if it was superseded, 5 if
    only a person can give it a store, 1 for other errors.
    """
    arguments = make_parser().parse_args(argv)
    try:
        settings = _settings(arguments)
        set_up_logging(settings.log_level)
        with HostLock(Path(settings.state_dir)) as lock:
            if arguments.restore is not None:
                return _restore(settings, arguments.restore.absolute(), lock)
            if arguments.prepare_for is not None:
                return _prepare(settings, arguments.prepare_for, backup=not arguments.no_backup)
            return _serve(settings, arguments, lock)
    except (SodaError, PolicyError) as error:
        sys.stderr.write(f"sodad: {error}\n")
        if isinstance(error, AnotherDaemonError):
            return EXIT_REFUSED
        if isinstance(error, StoreUnusableError):
            return EXIT_STORE_UNUSABLE
        return EXIT_SUPERSEDED if isinstance(error, SupersededError) else EXIT_ERROR


def make_parser() -> argparse.ArgumentParser:
    """What the command line may say."""
    parser = argparse.ArgumentParser(prog="sodad", description="Orders and preempts the jobs of a Slurm cluster.")
    parser.add_argument("--config", type=Path, help=f"configuration file (default: {CONFIG_FILE}, may be absent)")
    parser.add_argument("--once", action="store_true", help="run one cycle and leave")
    parser.add_argument("--new-store", action="store_true", help="make an empty store where one was lost, and leave")
    parser.add_argument(
        "--restore", type=Path, metavar="FILE", help="put a backup in the place of the store, and leave"
    )
    parser.add_argument(
        "--prepare-for",
        metavar="REVISION",
        help="before another version of slurm-soda: back up the store, take it back to this revision of it if it is at a "
        "newer one, and leave",
    )
    parser.add_argument("--no-backup", action="store_true", help="with --prepare-for: there is a backup already")
    parser.add_argument("--mode", choices=MODES, help="overrides mode of the configuration file")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="overrides log_level")
    parser.add_argument("--version", action="version", version=f"slurm-soda {version('slurm-soda')}")
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    """The configuration with the command line's overrides; a policy that does not exist is refused here, not later."""
    settings = load_settings(arguments.config)
    overrides = {"mode": arguments.mode, "log_level": arguments.log_level}
    settings = settings.model_copy(update={name: value for name, value in overrides.items() if value is not None})
    try:
        effective_settings(settings, {})
    except PolicyError as error:
        raise PolicyError(f"{arguments.config or CONFIG_FILE}: policy: {error}") from error
    return settings


def _serve(settings: Settings, arguments: argparse.Namespace, lock: HostLock) -> int:
    store = _open_store(
        settings, lock, create=arguments.new_store or not lock.had_store(store_path(settings.store.url))
    )
    lock.note_store(None if store.file is None else store.file.path)
    if arguments.new_store:
        store.close()
        sys.stderr.write(f"sodad: store {store.url} is ready\n")
        return 0
    forget_release(Path(settings.state_dir))
    with store.explained():
        return _schedule(settings, arguments, store, lock)


def _restore(settings: Settings, backup: Path, lock: HostLock) -> int:
    """Put a backup in the place of the store.

    Raises:
        SodaError: the store is no file, or the backup was not restored.
    """
    path = store_path(settings.store.url)
    if path is None:
        raise SodaError("store.url names no file, so there is none to restore; use the tools of its database server")
    aside = restore_store(backup, path)
    lock.note_store(path)
    there = f"; what was there is now {aside}" if aside is not None else ""
    sys.stderr.write(f"sodad: {path} is restored from {backup}{there}; start sodad\n")
    return 0


def _prepare(settings: Settings, revision: str, *, backup: bool) -> int:
    done = prepare_store(settings.store.url, revision, backup=backup)
    if done.backup is not None:
        sys.stderr.write(f"sodad: the store is backed up to {done.backup}\n")
    if done.taken_back_from is not None:
        sys.stderr.write(f"sodad: the store is taken back from revision {done.taken_back_from} to {revision}\n")
    return 0


def _open_store(settings: Settings, lock: HostLock, *, create: bool) -> Store:
    """The store; made where sodad has never had one, because an empty one would forget what admins and sodad have set.

    Raises:
        StoreRemovedError: there was one, and it is lost.
    """
    try:
        return open_store(settings.store.url, create=create, guarded=True)
    except StoreMissingError as error:
        raise error.as_lost(f"sodad has had a store here ({lock.path} says so)") from error


def _schedule(settings: Settings, arguments: argparse.Namespace, store: Store, lock: HostLock) -> int:
    clock, notifier = SystemClock(), SystemdNotifier()
    waker = WakeEvent(Path(settings.wake_path))
    signals = SignalFlags(waker)
    try:
        site = _Site(settings, arguments, store, lock, clock, notifier, waker, signals)
        lease = site.lead()
        return 0 if lease is None else site.run(lease)
    finally:
        notifier.stopping()
        waker.close()
        store.close()


@dataclass(slots=True)
class _Site:
    """One process of sodad: it waits to lead, and leads."""

    settings: Settings
    arguments: argparse.Namespace
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
            if self.arguments.once or not self.store.is_shared:
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
        context = DaemonContext(store, client, lease, clock, accounting_lookup, limits_lookup, reason_to_observe, name)
        cycles = CycleRunner(settings, context)
        try:
            if self.arguments.once:
                report = cycles.run()
                _log_cycle(report, self.notifier)
                return EXIT_ERROR if report.error else 0
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
            on_report=metrics.on_report,
        )
        cycles.problems, cycles.on_cycle = (
            lambda: (*writer.problems(), *metrics.problems, *page.problems, *reading_problems(context.client)),
            metrics.on_cycle,
        )
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
            settings = _settings(self.arguments)
        except (SodaError, PolicyError) as error:
            log(logging.ERROR, "not-reloaded", error=error)
            return False
        set_up_logging(settings.log_level)
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


if __name__ == "__main__":
    sys.exit(main())

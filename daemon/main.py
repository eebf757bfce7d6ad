"""``sodad``: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.cycle.effective_settings import effective_settings
from slurm_soda.daemon.cycle.epoch import AnotherDaemonError, HostLock, SupersededError
from slurm_soda.daemon.cycle.release_stamp import forget_release
from slurm_soda.daemon.cycle.signal_flags import SignalFlags
from slurm_soda.daemon.cycle.wake import WakeEvent
from slurm_soda.daemon.logs import set_up_logging
from slurm_soda.daemon.process import SodadProcess
from slurm_soda.daemon.settings.config_file import CONFIG_FILE, load_settings
from slurm_soda.daemon.settings.settings import MODES, Settings
from slurm_soda.daemon.store.engine import Store, open_store, store_path
from slurm_soda.daemon.store.preparation import prepare_store
from slurm_soda.daemon.store.restore import restore_store
from slurm_soda.daemon.store.store_errors import StoreMissingError, StoreUnusableError
from slurm_soda.policies.errors import PolicyError
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
        process = SodadProcess(
            settings, partial(_settings, arguments), arguments.once, store, lock, clock, notifier, waker, signals
        )
        lease = process.lead()
        return 0 if lease is None else process.run(lease)
    finally:
        notifier.stopping()
        waker.close()
        store.close()


if __name__ == "__main__":
    sys.exit(main())

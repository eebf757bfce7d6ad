"""What every command works on: this site's configuration, its store, its Slurm; and the options they all share."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click

from slurm_soda.daemon.cycle.epoch import had_store, lock_owner
from slurm_soda.daemon.settings.config_file import CONFIG_FILE, DaemonConfigError, load_settings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.store_errors import StoreMissingError
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.command_runner import CommandRunner, LocalCommandRunner
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions
from slurm_soda.sodactl.output import warn
from slurm_soda.wire.munge import Munge

P = ParamSpec("P")
R = TypeVar("R")


def _connect(settings: Settings) -> SlurmClient:
    from slurm_soda.slurm_ext.cli_client import CliSlurmClient, CommandTimeouts  # noqa: PLC0415 - brings numpy; half the commands need none
    from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader  # noqa: PLC0415 - the same

    limits = CommandTimeouts(read_s=settings.slurm.read_timeout_s, act_s=settings.slurm.write_timeout_s)
    return CliSlurmClient(LocalCommandRunner(), limits, reader=SqueueReader(shared_gres=settings.sharing.gres))


def _user_name() -> str:
    """Who types, for the record of changes: the user, and whoever became it with sudo."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    sudo_user = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo by {sudo_user})"[:255] if uid == 0 and sudo_user else name


def _is_sodad(pid: int) -> bool:
    """Whether this process lives and is a sodad, not another one that got its number."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith((b"/sodad", b"slurm_soda.daemon.main")) or word == b"sodad" for word in words)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The world around sodactl; tests put their own in place."""

    connect: Callable[[Settings], SlurmClient] = _connect
    runner: Callable[[], CommandRunner] = LocalCommandRunner
    now_s: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    who: Callable[[], str] = _user_name
    uid: Callable[[], int] = os.getuid
    host: Callable[[], str] = socket.gethostname
    url: Callable[[], str] = lambda: os.environ.get("SODA_URL", "")
    """Where sodad answers, if the user says so."""
    pid_lives: Callable[[int], bool] = _is_sodad
    munge: Munge = field(default_factory=Munge)
    """Proves to sodad who asks."""


@dataclass(frozen=True, slots=True)
class SiteAccess:
    """One command's view of the site."""

    settings: Settings
    config_path: Path | None
    context: CommandContext

    def now_s(self) -> float:
        """Unix seconds."""
        return self.context.now_s()

    def slurm(self) -> SlurmClient:
        """A connection to Slurm."""
        return self.context.connect(self.settings)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store as sodad keeps it; never made or upgraded from here.

        Raises:
            StoreError: it is not there, not readable for this user, or of another version.
        """
        try:
            store = open_store(self.settings.store.url, migrate=False, create=False)
        except StoreMissingError as error:
            had, pid = had_store(Path(self.settings.state_dir), error.path), self.local_daemon_pid()
            if pid and not had:
                raise error.as_begun(pid) from error
            if pid:
                because = f"sodad (pid {pid}) runs: it was removed under it, and sodad changes nothing more"
                raise error.as_lost(because) from error
            if had:
                raise error.as_lost("sodad has had a store here: it was removed") from error
            raise
        try:
            with store.explained():
                yield store
        finally:
            store.close()

    def partitions(self) -> ScontrolPartitions:
        """Slurm's partitions."""
        limits = self.settings.slurm
        return ScontrolPartitions(self.context.runner(), read_s=limits.read_timeout_s, act_s=limits.write_timeout_s)

    def local_daemon_pid(self) -> int | None:
        """Process id of the sodad that runs on this host, by its lock file; ``None`` if none does."""
        pid = lock_owner(Path(self.settings.state_dir))
        return pid if pid is not None and self.context.pid_lives(pid) else None


def wake_daemon(site: SiteAccess) -> None:
    """Let a running sodad run a cycle at once; without one this does nothing.

    The file is not made here: one of root's would keep slurmctld from writing it.
    """
    with suppress(OSError):
        os.utime(site.settings.wake_path)


def on_site(function: Callable[Concatenate[SiteAccess, P], R]) -> Callable[..., R]:
    """Give a command ``--config`` and ``--json`` (as ``as_json``) and pass it the :class:`SiteAccess` first."""
    return _with_site(function, must_read=True)


def on_any_site(function: Callable[Concatenate[SiteAccess, P], R]) -> Callable[..., R]:
    """As :func:`on_site`, but a configuration that cannot be read gives a warning and all defaults: for ways out."""
    return _with_site(function, must_read=False)


def _with_site(function: Callable[Concatenate[SiteAccess, P], R], *, must_read: bool) -> Callable[..., R]:
    @click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        envvar="SODA_CONFIG",
        help="Configuration file.  [default: /etc/slurm-soda/soda.toml if it exists; env: SODA_CONFIG]",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
    @click.pass_context
    @wraps(function)
    def wrapped(ctx: click.Context, /, config_path: Path | None, *args: P.args, **kwargs: P.kwargs) -> R:
        outside = ctx.find_object(CommandContext) or CommandContext()
        site = SiteAccess(_settings(config_path, must_read=must_read), config_path, outside)
        return function(site, *args, **kwargs)

    return wrapped


def _settings(path: Path | None, *, must_read: bool) -> Settings:
    # A site may keep the file to itself, for a password in store.url: its users then ask sodad, which knows what it says.
    if path is None and not os.access(CONFIG_FILE, os.R_OK):
        return Settings()
    try:
        return load_settings(path)
    except DaemonConfigError as error:
        if must_read:
            raise
        warn(f"defaults instead of the configuration: {error}")
        return Settings()

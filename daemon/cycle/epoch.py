"""One active daemon: a lock on this host and a numbered epoch in the store fence off a second or a stale sodad.

The operating system drops the lock with the process, however it dies, so a restart on the same host takes over at once. The
epoch covers what a lock on one host cannot: two hosts with one database, and a daemon that slept while another took over.
The newest epoch of a daemon is the leadership of the cluster: a controller begins one only where the last one ended, was its
own, or has been silent for as long as its lease and the longest command begun in it last, by the clock of the store.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import cast

from sqlalchemy import Table, bindparam, func, select, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.owners_rights import owners_rights
from slurm_soda.daemon.store.server import is_server, server_time, store_now_s
from slurm_soda.daemon.store.tables.scheduling import NO_DAEMON, TAKE_OVER_AFTER_S, Epoch
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.lock_file import open_lock_file

LOCK_NAME = "sodad.lock"
_MOST_LOCK_BYTES = 4200
"""More than a process id and the longest path."""
_HAD_STORE = b"store"
"""First word of the lock file's second line, once a sodad has had a store open that is a file; its path follows."""
_UNNAMED_STORE = "soda.db"
"""In the state directory: the store of a mark without a path, which earlier versions wrote."""

# Statements of each cycle, on the table and built once: on the class and built anew they take several times as long.
_EPOCHS = cast("Table", Epoch.__table__)
_NEWEST = select(func.max(_EPOCHS.c.id))
_OWN = update(_EPOCHS).where(_EPOCHS.c.id == bindparam("own"))
_WRITE_HEARTBEAT = _OWN.values(heartbeat_s=bindparam("now_s"))
_WRITE_HEARTBEAT_BY_SERVER = _OWN.values(heartbeat_s=server_time())


class AnotherDaemonError(SodaError):
    """Another sodad is active here; this one must not act."""


class SupersededError(SodaError):
    """A newer daemon has taken over while this one was away; this one must stop."""


class HostLock:
    """The lock file of a state directory; held until :meth:`release` or the end of the process.

    Only its owner and root can read it; its date, the last heartbeat, is for everybody.
    """

    def __init__(self, state_dir: Path) -> None:
        """Take the lock.

        Raises:
            AnotherDaemonError: another process of this host holds it.
            SodaError: the directory cannot be used, or the file is a link or a second name of some other file, which may be
                one that only a sodad run by root could write.
        """
        self.path = state_dir / LOCK_NAME
        try:
            with owners_rights(self.path):  # one that root made would lock out a sodad of SlurmUser
                self._fd = open_lock_file(self.path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise SodaError(f"{self.path} is a link, which is not followed; remove it") from error
            raise SodaError(f"{self.path}: {error.strerror}; make state_dir, owned by sodad's user") from error
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.close(self._fd)
            raise SodaError(f"{self.path} is not a file with one name; remove it")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = (
                os.pread(self._fd, _MOST_LOCK_BYTES, 0).decode("ascii", "replace").split("\n")[0].strip() or "unknown"
            )
            os.close(self._fd)
            raise AnotherDaemonError(
                f"another sodad (pid {owner}) is active and holds {self.path}; this one refuses to act, stop that one first"
            ) from error
        self._mark = _store_mark(os.pread(self._fd, _MOST_LOCK_BYTES, 0).split(b"\n"))
        self._write()

    def had_store(self, path: Path | None) -> bool:
        """Whether a sodad has last had this store open here: if it is missing now, it was lost; ``None`` is no file."""
        return _names(self._mark, path, self.path.parent)

    def note_store(self, path: Path | None) -> None:
        """Remember which store there is, for the next one to hold this lock; ``None`` is no file, as on a server."""
        self._mark = b"" if path is None else b"%b %b" % (_HAD_STORE, os.fsencode(path.absolute()))
        self._write()

    def _write(self) -> None:
        text = b"%d\n%b\n" % (os.getpid(), self._mark)
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def touch(self) -> None:
        """Date the file: the last heartbeat, also for those who cannot read the store."""
        with suppress(OSError):  # whoever finds it old asks the store
            os.utime(self._fd)

    def release(self) -> None:
        """Let go; the file stays, because removing it would let two processes lock two files of one name."""
        os.close(self._fd)

    def __enter__(self) -> HostLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def lock_owner(state_dir: Path) -> int | None:
    """Process id in a state directory's lock file, which may be that of an earlier daemon; ``None`` if there is none."""
    first = _lock_lines(state_dir)[0].strip()
    return int(first) if first.isdigit() else None


def had_store(state_dir: Path, path: Path) -> bool:
    """Whether a sodad of this host has last had this store open, by the lock file: if it is missing now, it was lost."""
    return _names(_store_mark(_lock_lines(state_dir)), path, state_dir)


def _store_mark(lines: Sequence[bytes]) -> bytes:
    """The line of a lock file that tells of a store; empty if none does."""
    return next((line for line in lines if line.split(b" ", 1)[0] == _HAD_STORE), b"")


def _names(mark: bytes, path: Path | None, state_dir: Path) -> bool:
    if not mark or path is None:
        return False
    named = os.fsdecode(mark.partition(b" ")[2]) or state_dir / _UNNAMED_STORE
    return Path(named).absolute() == path.absolute()


def _lock_lines(state_dir: Path) -> list[bytes]:
    """At least one; an empty one where the file cannot be read."""
    try:
        fd = os.open(state_dir / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return [b""]
    try:
        return os.read(fd, _MOST_LOCK_BYTES).split(b"\n")
    except OSError:
        return [b""]
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class DaemonEpoch:
    """This daemon's own epoch."""

    epoch_id: int

    def check(self, session: Session) -> None:
        """Make sure that no newer daemon has taken over.

        Raises:
            SupersededError: one has.
        """
        newest = session.scalar(_NEWEST)
        if newest != self.epoch_id:
            raise SupersededError(
                f"epoch {self.epoch_id} of this sodad is superseded by epoch {newest}; it stops without sending anything"
            )

    def write_heartbeat(self, session: Session, now_s: float) -> None:
        """Say that this daemon lives."""
        if is_server(session):
            session.execute(_WRITE_HEARTBEAT_BY_SERVER, {"own": self.epoch_id})
        else:
            session.execute(_WRITE_HEARTBEAT, {"own": self.epoch_id, "now_s": now_s})

    def promise(self, session: Session, take_over_after_s: float) -> None:
        """Say how long others must wait after the last heartbeat."""
        session.execute(_OWN.values(take_over_after_s=take_over_after_s), {"own": self.epoch_id})

    def end(self, session: Session, now_s: float) -> None:
        """Say that this daemon stopped on purpose."""
        now_s = store_now_s(session, now_s)
        session.execute(update(Epoch).where(Epoch.id == self.epoch_id).values(heartbeat_s=now_s, ended_s=now_s))


@dataclass(frozen=True, slots=True)
class Leader:
    """The daemon of the newest epoch, as others find it."""

    epoch: Epoch
    silent_s: float
    """Since its last heartbeat, by the clock of the store."""

    def remaining_s(self, host: str, state_dir: str, watched_s: float = 0.0) -> float:
        """How long this controller must not begin an epoch yet; 0 where it may.

        Args:
            host: its host.
            state_dir: its directory, whose lock it holds: of an epoch from there no process is left.
            watched_s: how long it has seen this very heartbeat, by a clock that never jumps: the store's may be set back.
        """
        epoch = self.epoch
        if epoch.ended_s is not None or (epoch.host, epoch.state_dir) == (host, state_dir):
            return 0.0
        return max(0.0, epoch.take_over_after_s - max(self.silent_s, watched_s))


def find_leader(session: Session, now_s: float) -> Leader | None:
    """The daemon of the newest epoch, whether it lives or not; ``None`` where none ever began."""
    query = select(Epoch).where(Epoch.pid != NO_DAEMON).order_by(Epoch.id.desc()).limit(1)
    epoch = session.scalars(query).first()
    return None if epoch is None else Leader(epoch, store_now_s(session, now_s) - epoch.heartbeat_s)


def begin_epoch(
    store: Store,
    *,
    host: str,
    pid: int,
    version: str,
    now_s: float,
    state_dir: str = "",
    take_over_after_s: float = TAKE_OVER_AFTER_S,
    watched_s: Callable[[Epoch], float] = lambda _leader: 0.0,
) -> DaemonEpoch:
    """Begin a new epoch; the caller holds the :class:`HostLock` of ``state_dir``.

    Compare and set in one transaction: writers of a store follow each other, and two epochs cannot have one number.

    Args:
        store: where.
        host: this host.
        pid: this process.
        version: of the program.
        now_s: the instant by this host's clock, Unix seconds.
        state_dir: with the host it names this controller.
        take_over_after_s: how long others must wait after this daemon's last heartbeat.
        watched_s: see :meth:`Leader.remaining_s`.

    Raises:
        AnotherDaemonError: the daemon of another controller may still have changes on their way.
    """
    with store.write() as session:
        leader, newest = find_leader(session, now_s), session.scalar(_NEWEST) or 0
        if leader is not None and leader.epoch.id != newest and not store.is_shared:
            leader = None  # a person who moves a file to another host has taken its lifts back
        if leader is not None and (left_s := leader.remaining_s(host, state_dir, watched_s(leader.epoch))):
            raise AnotherDaemonError(
                f"another sodad (pid {leader.epoch.pid} on {leader.epoch.host}) was active {leader.silent_s:.0f} s ago in "
                f"the same store; this one refuses to act, stop that one first or wait {left_s:.0f} s"
            )
        began_s = store_now_s(session, now_s)
        epoch = Epoch(
            id=newest + 1,
            host=host,
            pid=pid,
            version=version,
            started_s=began_s,
            heartbeat_s=began_s,
            state_dir=state_dir,
            take_over_after_s=take_over_after_s,
        )
        session.add(epoch)
        session.flush()
        return DaemonEpoch(epoch.id)


def supersede_daemon(
    store: Store, *, host: str, version: str, now_s: float, unless: Callable[[Epoch], bool]
) -> DaemonEpoch | None:
    """Begin an epoch of no daemon: every daemon before it, also one that is paused, sends nothing more.

    Args:
        store: where.
        host: this host.
        version: of the program that does it.
        now_s: the instant, Unix seconds.
        unless: asked about the newest epoch; where it holds, that epoch stays the newest.

    Returns:
        The epoch, an earlier one where no daemon has begun since; ``None`` where no daemon ever began, or ``unless`` held.
    """
    with store.write() as session:
        last = session.scalars(select(Epoch).order_by(Epoch.id.desc()).limit(1)).first()
        if last is None or unless(last):
            return None
        if last.pid == NO_DAEMON:
            return DaemonEpoch(last.id)
        began_s = store_now_s(session, now_s)
        epoch = Epoch(
            id=last.id + 1,
            host=host,
            pid=NO_DAEMON,
            version=version,
            started_s=began_s,
            heartbeat_s=last.heartbeat_s,
        )
        session.add(epoch)
        session.flush()
        return DaemonEpoch(epoch.id)

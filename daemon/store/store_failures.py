"""What a failure of the database means for people: its cause in a few words, and the remedy."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import sys
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.store.store_file import log_files

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DISK = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})
_RIGHTS = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})

_PRIMARY_CODE = 0xFF
"""The lowest byte of SQLite's extended result codes."""


def is_damaged(error: SQLAlchemyError) -> bool:
    """Whether the file is no database, or no longer a sound one: trying again is of no use."""
    return _code(error) in _DAMAGED


def is_denied(error: SQLAlchemyError) -> bool:
    """Whether the file may not be read or written."""
    return _code(error) in _RIGHTS


def explain_failure(error: SQLAlchemyError, path: Path | None) -> tuple[str, str]:
    """Cause and remedy, one line each, without the statement that failed.

    Args:
        error: what the database said.
        path: the SQLite file; ``None`` for another database.
    """
    cause = first_line(error)
    if path is None:
        return cause, "check store.url and the database server"
    try:
        return _explain_by_code(cause, _code(error), path)
    except OSError:
        return cause, f"make {path.parent}, owned by SlurmUser, and restart sodad"


def _explain_by_code(cause: str, code: int, path: Path) -> tuple[str, str]:
    if code in _DAMAGED:
        check = "check store.url; if it is right, " if code == sqlite3.SQLITE_NOTADB else ""
        return cause, check + _replacement_remedy(path)
    if code in _DISK:
        remedy = "make room there, or raise the limit on the size of sodad's files; sodad goes on by itself"
        return f"{cause} on {describe_disk(path)}", remedy
    if code in _RIGHTS:
        return cause, rights_remedy(path)
    return cause, "check store.url and your rights"


def describe_disk(path: Path) -> str:
    """The disk that a file is on: its directory, where it is mounted, and how much is free for users."""
    folder = path.parent.resolve()
    mount = next(place for place in (folder, *folder.parents) if place.is_mount())
    return f"the disk of {folder} (mounted at {mount}, {free_mib(path)} MiB free)"


def free_mib(path: Path) -> int:
    """Space for others than root on the disk that a file is on."""
    return shutil.disk_usage(path.parent).free // 2**20


def rights_remedy(path: Path) -> str:
    """What to do for a user who may not use a store, which belongs to its directory's owner, as whom root opens it."""
    try:
        owner = path.parent.stat().st_uid
    except PermissionError:
        owner = -1
    if os.geteuid() not in (0, owner):
        return "run this as root or SlurmUser, who must own that directory and what is in it"
    if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        return f"the file system of {path.parent} is mounted read-only: mend it and mount it for writing"
    commands = ownership_commands(path, owner) or [f"chmod u+rwx {path.parent}"]
    return f"as root: {'; '.join(commands)}"


def ownership_commands(path: Path, uid: int) -> list[str]:
    """Commands that let a user read and write a store; none if the files and their directory are that user's."""
    files = [file for file in (path, *log_files(path)) if file.exists()]
    found, folder = [file.stat() for file in files], path.parent.stat()
    user, commands = _user_name(uid), []
    if folder.st_uid != uid:
        commands.append(f"chown {user}: {path.parent}")
    if any(one.st_uid != uid for one in found):
        commands.append(f"chown {user}: {path}*")
    if any(one.st_mode & 0o600 != 0o600 for one in found):
        commands.append(f"chmod u+rw {path}*")
    return commands


def restore_command() -> str:
    """What root runs to put a backup in the place of the store; sodad itself acts for SlurmUser where it writes."""
    return f"{_sodad()} --restore FILE"


def new_store_command(path: Path) -> str:
    """What root runs to make an empty store at ``path``: sodad, which is on no PATH, as SlurmUser, who owns the folder."""
    try:
        user = _user_name(path.parent.stat().st_uid)
    except OSError:
        user = "slurm"
    return f"runuser -u {user} -- {_sodad()} --new-store"


def _sodad() -> str:
    """The command as people know it: PREFIX/bin has links into the environment, PREFIX/lib/slurm-soda/environment.*."""
    environment = Path(sys.prefix)
    prefix = environment.parents[2] if environment.match("lib/slurm-soda/environment.*") else environment
    return f"{prefix}/bin/sodad"


def _user_name(uid: int) -> str:
    """As ``chown`` takes it; the number where the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def first_line(error: BaseException) -> str:
    """What an error says first, which is what it means; of a database's error the driver's own words."""
    return str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0] or type(error).__name__


def _code(error: SQLAlchemyError) -> int:
    return int(getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)) & _PRIMARY_CODE


def _replacement_remedy(path: Path) -> str:
    return (
        f"stop sodad, as root run `{restore_command()}` with a backup, or move {path}* aside and run "
        f"`{new_store_command(path)}`, and start sodad; "
        "lost without a backup: mode and policy set by sodactl, history, attained service, old values of changed requests"
    )

"""The store before another version of slurm-soda takes over: backed up, and at a revision that this version knows.

A newer version brings the store forward by itself, an older one refuses it: only this one, which made it, can take it back.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.daemon.store.engine import (
    Store,
    known_versions,
    migrate_to,
    open_store,
    store_path,
    version_of,
)
from slurm_soda.daemon.store.owners_rights import owners_rights
from slurm_soda.daemon.store.store_errors import StoreError, StoreVersionError

BACKUPS_KEPT = 3
_SUFFIX = ".backup"
_MODE = 0o640


@dataclass(frozen=True, slots=True)
class Preparation:
    """What was done."""

    backup: Path | None
    """``None`` where there is no store, or it is on a server."""
    taken_back_from: str | None
    """Revision that the store was at, if a newer one than asked for."""


def prepare_store(url: str, revision: str, *, backup: bool = True) -> Preparation:
    """Make the store ready for a version of slurm-soda whose newest revision is ``revision``; the caller holds sodad's lock.

    What only later revisions have is lost from the store, and is in the backup. The newest backups of this kind stay.

    Args:
        url: the store's.
        revision: of the version to come; one that this version does not know is a newer one's.
        backup: copy the store first. One on a server is not copied, and is taken back only without.

    Raises:
        StoreError: it is no revision, or the store cannot be copied or taken back; it is then as it was.
    """
    if not re.fullmatch(r"\d{4}", revision):
        raise StoreError(f"revision is {revision!r}; expected four digits such as {max(known_versions())!r}")
    path = store_path(url)
    if path is not None and not path.exists():
        return Preparation(None, None)
    copy = _back_up(path) if path is not None and backup else None
    store = _open(url)
    try:
        with store.explained():
            now = version_of(store.engine)
            if now is None or now <= revision:
                return Preparation(copy, None)
            if path is None and backup:
                raise StoreError(
                    f"store {store.url} is at revision {now}, and the version to come knows {revision} at the most",
                    "dump it by the tools of its server, stop sodad on every controller, and say --no-backup too",
                )
            migrate_to(store, revision)
    finally:
        store.close()
    return Preparation(copy, now)


def _open(url: str) -> Store:
    """The store as it is; one that is older than this version is brought forward, as its sodad would do."""
    try:
        return open_store(url, migrate=False, create=False)
    except StoreVersionError as error:
        try:
            return open_store(url, create=False)
        except StoreVersionError:
            raise error from None


def _back_up(path: Path) -> Path:
    """A sound copy beside the store, of the owner of its directory; by SQLite, with what its log holds."""
    with owners_rights(path):
        copy = _new_name(path)
        try:
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE))
        except OSError as error:
            raise StoreError(f"{copy}: {error.strerror}", "nothing was changed") from error
        try:
            shown = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(shown, uri=True)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            _flush(copy)
        except (sqlite3.Error, OSError) as error:
            copy.unlink(missing_ok=True)
            raise StoreError(f"{path} cannot be copied: {error}", "make room beside it; nothing was changed") from error
        for old in sorted(path.parent.glob(f"{path.name}.*{_SUFFIX}"))[:-BACKUPS_KEPT]:
            with suppress(OSError):
                old.unlink()
    return copy


def _new_name(path: Path) -> Path:
    now_us = time.time_ns() // 1000
    dated = time.strftime("%Y-%m-%dT%H%M%S", time.localtime(now_us // 1_000_000))
    return path.with_name(f"{path.name}.{dated}.{now_us % 1_000_000:06}{_SUFFIX}")


def _flush(path: Path) -> None:
    """To the disk: what follows changes the store."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

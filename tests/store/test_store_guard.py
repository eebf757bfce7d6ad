"""What becomes of the files of a store that sodad has open is seen, and its end spoils no file that is not its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from slurm_soda.daemon.store import store_guard
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.store_errors import StoreLogRemovedError, StoreRemovedError


@pytest.fixture
def place(made_store: Path, tmp_path: Path) -> Path:
    """Where the store is."""
    (tmp_path / "soda.db").write_bytes(made_store.read_bytes())
    return tmp_path / "soda.db"


@pytest.fixture
def guarded(place: Path) -> Iterator[Store]:
    """As sodad opens it."""
    store = open_store(f"sqlite:///{place}", guarded=True)
    yield store
    store.close()


def put(store: Store, key: str) -> None:
    with store.write() as session:
        session.execute(text("INSERT OR REPLACE INTO admin_setting VALUES (:key, 'v', 0, 'me')"), {"key": key})


def keys(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [key for (key,) in connection.execute("SELECT key FROM admin_setting ORDER BY key")]


def elsewhere(place: Path, *statements: str) -> None:
    """What another process does with the store."""
    code = (
        "import sqlite3, sys\nconnection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for statement in sys.argv[2:]: connection.execute(statement).fetchall()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(place), *statements], check=True)


def backup(place: Path) -> Path:
    """One that SQLite made."""
    copy = place.with_name("copy.db")
    with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


@pytest.mark.parametrize("stage", ["new", "copied", "renewed", "checkpoint elsewhere"])
def test_an_overwritten_file_is_seen_and_stays_as_it_was_put_there(
    guarded: Store, place: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_guard, "_CHECKPOINT_FRAMES", 1)
    put(guarded, "before")
    copy = backup(place)
    put(guarded, "after")
    if stage in ("copied", "renewed"):
        guarded.checkpoint_when_due()
    if stage == "renewed":
        put(guarded, "renewed")
    if stage == "checkpoint elsewhere":
        elsewhere(place, "PRAGMA wal_checkpoint(TRUNCATE)")
        guarded.check_in_place()
    place.write_bytes(copy.read_bytes())
    for _ in range(2):
        with pytest.raises(StoreRemovedError):
            guarded.check_in_place()
    guarded.checkpoint_when_due()
    guarded.close()
    assert place.read_bytes() == copy.read_bytes()
    assert not place.with_name("soda.db-wal").exists()
    assert len(list(place.parent.glob("soda.db.????-??-??T??????-wal"))) == 1
    assert keys(place) == ["before"]


def test_the_log_of_a_file_that_was_replaced_is_not_taken_for_that_of_the_new_one(guarded: Store, place: Path) -> None:
    put(guarded, "before")
    copy = backup(place)
    put(guarded, "after")
    copy.rename(place)
    guarded.close()
    assert keys(place) == ["before"]


@pytest.mark.parametrize("gone", ["-wal", "-shm"])
@pytest.mark.parametrize("again", [False, True])
def test_a_log_that_is_removed_is_seen_and_nothing_that_sodad_wrote_is_lost(
    guarded: Store, place: Path, gone: str, again: bool
) -> None:
    put(guarded, "sodad")
    for suffix in {gone, "-shm"}:
        place.with_name(f"soda.db{suffix}").unlink()
    if again:
        elsewhere(place, "INSERT INTO admin_setting VALUES ('other', 'v', 0, 'me')")
    with pytest.raises(StoreLogRemovedError, match="restart sodad"):
        guarded.check_in_place()
    with pytest.raises(StoreLogRemovedError):
        put(guarded, "later")
    guarded.close()
    assert keys(place)[-1:] == ["sodad"]


ACTS: dict[str, Callable[[Store, Path], None]] = {
    "write": lambda store, _: put(store, os.urandom(4).hex()),
    "checkpoint": lambda store, _: store.checkpoint_when_due(),
    "look": lambda store, _: store.check_in_place(),
    "write elsewhere": lambda _, place: act_here(place, "INSERT OR REPLACE INTO admin_setting VALUES ('x', 1, 2, 3)"),
    "passive": lambda _, place: act_here(place, "PRAGMA wal_checkpoint(PASSIVE)"),
    "truncate": lambda _, place: act_here(place, "PRAGMA wal_checkpoint(TRUNCATE)"),
    "vacuum": lambda _, place: act_here(place, "VACUUM"),
}


def act_here(place: Path, statement: str) -> None:
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute(statement).fetchall()


@given(acts=st.lists(st.sampled_from(sorted(ACTS)), max_size=30))
def test_what_users_of_sqlite_do_is_no_loss(
    made_store: Path, tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    place = tmp_path_factory.mktemp("store") / "soda.db"
    place.write_bytes(made_store.read_bytes())
    store = open_store(f"sqlite:///{place}", guarded=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_guard, "_CHECKPOINT_FRAMES", 3)
        for act in acts:
            ACTS[act](store, place)
        store.check_in_place()
    store.close()
    store.close()
    assert not list(place.parent.glob("soda.db.*"))


def test_the_log_stays_short(guarded: Store, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_guard, "_CHECKPOINT_FRAMES", 20)
    sizes = []
    for number in range(200):
        put(guarded, str(number))
        guarded.checkpoint_when_due()
        sizes.append(place.with_name("soda.db-wal").stat().st_size)
    assert max(sizes[100:]) == max(sizes[:100]) < 50 * 4200

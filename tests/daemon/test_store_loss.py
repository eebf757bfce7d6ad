"""A store that is removed, replaced or cannot be written while sodad runs: nothing more is changed, and sodad says why."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from slurm_soda.daemon.store.engine import open_store
from slurm_soda.slurm_ext.client import SlurmJob
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]


def remove(store: Path) -> None:
    for file in store.parent.glob("soda.db*"):
        file.unlink()


def replace(store: Path) -> None:
    remove(store)
    open_store(f"sqlite:///{store}").close()


def remove_folder(store: Path) -> None:
    shutil.rmtree(store.parent)


def overwrite(store: Path) -> None:
    """With what it holds: nothing in it tells the copy from the store."""
    copy = store.with_name("copy.db")
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    store.write_bytes(copy.read_bytes())


def remove_log(store: Path) -> None:
    for file in store.parent.glob("soda.db-*"):
        file.unlink()


def preempting(slurm: FakeSlurm, daemon: Start) -> Daemon:
    """A daemon that would preempt job 1 in its next cycle."""
    slurm.submit(1, gpus=4, work_s=500.0)
    slurm.tick()
    sodad = daemon()
    sodad.follow(120)
    slurm.submit(2, gpus=4, work_s=20.0)
    return sodad


@pytest.mark.parametrize("lose", [remove, replace, remove_folder, overwrite, remove_log])
def test_without_its_store_sodad_changes_nothing_more(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path, lose: Callable[[Path], None]
) -> None:
    sodad = preempting(slurm, daemon)
    lose(fresh_store / "soda.db")
    before: list[SlurmJob] = slurm.jobs()
    reports = [sodad.run() for _ in range(3)]
    for report in reports:
        assert ("log of store" if lose is remove_log else "soda.db was removed or replaced") in report.error
        assert ("restart sodad" if lose is remove_log else "/sodad --restore FILE; systemctl start") in report.error
        assert (report.sent, report.acts) == (0, False)
    assert slurm.jobs() == before
    sodad.store.close()
    if lose in (remove, replace, remove_folder):
        assert "soda.db" in sodad.run().error
        assert slurm.jobs() == before
    sodad.cycles.close()


def test_a_store_that_stays_is_followed(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = preempting(slurm, daemon)
    assert sodad.run().sent > 0


def test_a_new_connection_makes_no_store(fresh_store: Path) -> None:
    """The API opens connections while sodad runs; SQLite would make an empty file for everybody to read."""
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    remove(fresh_store / "soda.db")
    store.engine.dispose()
    with pytest.raises(OperationalError, match="unable to open"), store.read() as session:
        session.execute(text("SELECT 1"))
    assert list(fresh_store.glob("soda.db*")) == []


def test_odd_characters_in_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b#é"
    folder.mkdir()
    open_store(f"sqlite:///{folder}/soda.db").close()
    assert (folder / "soda.db").stat().st_size > 0

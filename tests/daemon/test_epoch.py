"""One active daemon: the lock of a host and the epoch of a store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import AnotherDaemonError, HostLock, SupersededError, begin_epoch, had_store
from slurm_soda.daemon.store.engine import Store
from slurm_soda.slurm_ext.errors import SodaError


def test_a_second_daemon_of_one_host_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    with HostLock(tmp_path), pytest.raises(AnotherDaemonError, match=f"pid {os.getpid()}"):
        HostLock(tmp_path)
    HostLock(tmp_path).release()


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("there", [True, False])
def test_the_lock_is_no_link_to_another_file(tmp_path: Path, link: Callable[[Path, Path], None], there: bool) -> None:
    """A sodad that root started would cut off whatever file SlurmUser's link leads to."""
    target = tmp_path / "passwd"
    if there or link is Path.hardlink_to:
        target.write_text("root:x:0:0")
    link(tmp_path / "sodad.lock", target)
    with pytest.raises(SodaError, match=r"sodad\.lock is .*remove it"):
        HostLock(tmp_path)
    assert not target.exists() or target.read_text() == "root:x:0:0"


def test_a_store_on_a_server_leaves_no_file_to_be_lost(tmp_path: Path) -> None:
    with HostLock(tmp_path) as lock:
        lock.note_store(tmp_path / "soda.db")
    with HostLock(tmp_path) as lock:
        assert lock.had_store(tmp_path / "soda.db")
        assert not lock.had_store(tmp_path / "new.db")
        assert not lock.had_store(None)
        lock.note_store(None)
    assert not had_store(tmp_path, tmp_path / "soda.db")


def test_the_lock_goes_with_the_process_however_it_dies(tmp_path: Path) -> None:
    code = "\n".join(
        [
            "import sys",
            "from pathlib import Path",
            "from slurm_soda.daemon.cycle.epoch import HostLock",
            "lock = HostLock(Path(sys.argv[1]))",
            "print('held', flush=True)",
            "input()",
        ]
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AnotherDaemonError, match=f"pid {holder.pid}"):
            HostLock(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    HostLock(tmp_path).release()


def test_a_state_dir_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SodaError, match="make state_dir"):
        HostLock(tmp_path / "none")


def test_the_next_life_on_the_same_host_takes_over_at_once(store: Store) -> None:
    old = begin_epoch(store, host="a", pid=1, version="0", now_s=100.0)
    new = begin_epoch(store, host="a", pid=2, version="0", now_s=101.0)
    with store.read() as session:
        new.check(session)
        with pytest.raises(SupersededError):
            old.check(session)


@pytest.mark.parametrize(("now_s", "refused"), [(150.0, True), (230.0, False)])
def test_a_daemon_of_another_host_is_respected_while_it_shows_life(store: Store, now_s: float, refused: bool) -> None:
    daemon_epoch = begin_epoch(store, host="a", pid=1, version="0", now_s=100.0)
    with store.write() as session:
        daemon_epoch.write_heartbeat(session, 105.0)
    if refused:
        with pytest.raises(AnotherDaemonError, match="on a"):
            begin_epoch(store, host="b", pid=1, version="0", now_s=now_s)
    else:
        begin_epoch(store, host="b", pid=1, version="0", now_s=now_s)


def test_a_daemon_that_stopped_on_purpose_is_no_obstacle(store: Store) -> None:
    daemon_epoch = begin_epoch(store, host="a", pid=1, version="0", now_s=100.0)
    with store.write() as session:
        daemon_epoch.end(session, 101.0)
    begin_epoch(store, host="b", pid=1, version="0", now_s=102.0)

"""Lock files that nobody but their owner can lock."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import HostLock
from slurm_soda.slurm_ext.pools.state_files import hold_lock
from slurm_soda.wire.lock_file import open_lock_file

OTHER = 65534


@contextmanager
def locked_by_another_user(path: Path) -> Iterator[None]:
    """Somebody else tries to hold the file, as long as he can open it."""
    for folder in path.parents:
        if str(folder) not in ("/", "/tmp"):
            folder.chmod(0o755)
    script = f'exec 9<"{path}" && flock -n 9 && echo held || echo refused; exec sleep 60'
    argv = ["setpriv", f"--reuid={OTHER}", "--clear-groups", "bash", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        try:
            yield
        finally:
            attacker.kill()


def take_host_lock(path: Path) -> None:
    HostLock(path.parent).release()


def take_pools_lock(path: Path) -> None:
    with hold_lock(path):
        pass


TAKERS = {"sodad.lock": take_host_lock, "pools.lock": take_pools_lock}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(("name", "take"), TAKERS.items())
def test_no_other_user_keeps_a_lock(tmp_path: Path, name: str, take: Callable[[Path], None], earlier: bool) -> None:
    path = tmp_path / name
    if earlier:
        path.write_text("7\n")
        path.chmod(0o644)
    take(path)
    with locked_by_another_user(path):
        take(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_second_name_of_another_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root")
    (tmp_path / "passwd").chmod(0o644)
    (tmp_path / "lock").hardlink_to(tmp_path / "passwd")
    os.close(open_lock_file(tmp_path / "lock"))
    assert (tmp_path / "passwd").stat().st_mode & 0o777 == 0o644


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "absent")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock_file(tmp_path / "lock")
    assert not (tmp_path / "absent").exists()


def test_two_cannot_hold_it(tmp_path: Path) -> None:
    first, second = open_lock_file(tmp_path / "lock"), open_lock_file(tmp_path / "lock")
    fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(first)
    os.close(second)

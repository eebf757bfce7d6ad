"""What is left of a control daemon of MPS: by hooks that were killed, and by its user."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from tests.emulation.mps import wait_until
from tests.prolog.mps_node import AS_ROOT, OTHER, UID, Node, as_user, hardware, node, plant, train

__all__ = ["hardware", "node"]
pytestmark = AS_ROOT


def test_a_killed_daemon_with_a_server_and_its_directories_is_cleaned(node: Node) -> None:
    assert node.start(7) == 0
    program = train(node, 7)
    assert program.stdout is not None
    program.stdout.readline()
    first = node.daemon()
    os.kill(first, signal.SIGKILL)
    program.kill()
    program.communicate()
    wait_until(lambda: len(node.processes()) == 1)  # its server
    assert node.start(8) == 0
    assert node.daemon() != first
    assert len(node.processes()) == 1
    node.stop(7), node.stop(8)
    assert node.left() == []


def test_a_daemon_whose_epilog_was_killed_is_ended_by_the_next_hook(node: Node) -> None:
    assert node.start(7) == node.start(8, OTHER) == 0
    node.record(7).unlink()
    (node.run / "mps/all").mkdir()  # a hook was killed before it wrote anything
    for _ in range(2):  # one at a time
        assert node.hook("mps-stop").returncode == 0
    assert sorted(path.name for path in node.mps.iterdir()) == [str(OTHER)]
    assert len(node.processes()) == 1


def test_a_job_that_has_gone_is_forgotten_while_others_run(node: Node) -> None:
    assert node.start(7) == node.start(8) == node.start(9) == 0
    node.record(8).unlink()
    node.record(9).rename(node.run / "shares/guest.9")
    assert node.hook("mps-stop").returncode == 0
    assert sorted(path.name for path in (node.mps / str(UID)).glob("job.*")) == ["job.7", "job.9"]
    assert len(node.processes()) == 1


def test_a_hostile_user_of_his_own_directories_harms_only_himself(node: Node) -> None:
    """He replaces all in pipe and log by links, FIFOs and files, again and again while hooks start and stop."""
    precious = node.top / "precious"
    precious.mkdir()
    (precious / "kept").write_text("kept")
    script = """import os, random, shutil, sys, time
base, target, until = sys.argv[1], sys.argv[2], time.monotonic() + 5
names = ["control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid", "server.1", "control.log"]
while time.monotonic() < until:
    path = base + random.choice(["/pipe/", "/log/"]) + random.choice(names)
    try:
        if random.random() < .5: os.rename(path, path + "y") if random.random() < .1 else os.unlink(path)
        random.choice([lambda: os.symlink(target, path), lambda: os.symlink(target + "/kept", path), lambda: os.mkfifo(path),
                       lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)), lambda: os.mkdir(path)])()
    except OSError: pass
"""
    attacker = subprocess.Popen(
        ["setpriv", f"--reuid={UID}", "--clear-groups", "/usr/bin/python3", "-c", script, str(node.mps / str(UID)),
         str(precious)],
    )  # fmt: skip
    rounds = 0
    while attacker.poll() is None:
        begin = time.monotonic()
        node.start(7)
        assert time.monotonic() - begin < 3
        node.stop(7)
        node.stop(8)
        rounds += 1
        (node.run / "shares/env.7").unlink(missing_ok=True)
    assert rounds > 2
    assert (precious / "kept").read_text() == "kept"
    assert precious.stat().st_uid == 0
    node.start(8, OTHER)
    node.stop(8)
    assert node.left() == []


GOES_ON = """import os, sys
os.chdir(sys.argv[1])
for name in range(20_000): os.close(os.open(str(name), os.O_CREAT))
print(flush=True)
while True:
    for name in range(100):
        try: os.close(os.open(str(name), os.O_CREAT))
        except OSError: sys.exit()
"""


def test_nobody_waits_for_what_a_user_put_into_his_directories(node: Node) -> None:
    """So much that it takes long to be removed, and he goes on with it: it goes to where the agent removes it."""
    assert node.start(7) == node.start(8, OTHER) == 0
    attacker = as_user(GOES_ON, node.mps / str(UID) / "log")
    try:
        node.stop(7)
        assert f"{UID}" not in " ".join(node.left())
        begin = time.monotonic()
        assert node.start(9) == 0
        node.stop(9)
        assert time.monotonic() - begin < 4
    finally:
        attacker.kill()
        attacker.communicate()
    leftovers = node.run / "leftovers"
    assert (leftovers.stat().st_uid, leftovers.stat().st_mode & 0o777) == (0, 0o700)
    assert {path.name.partition(".")[0] for path in leftovers.iterdir()} <= {str(UID)}
    node.stop(8)
    assert node.left() == []


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_leftovers_go_nowhere_but_to_a_directory_of_root(node: Node, kind: str) -> None:
    target = node.top / "target"
    target.mkdir()
    plant(kind, node.run / "leftovers", target)
    assert node.start(7) == 0
    node.stop(7)
    assert node.left() == list(target.iterdir()) == []

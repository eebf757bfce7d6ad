"""Hooks at work with the same control daemon of MPS at the same time, and users who try to keep them waiting."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import threading
import time
from pathlib import Path

from tests.prolog.mps_node import AS_ROOT, CONTROL, OTHER, UID, Node, as_user, hardware, node

__all__ = ["hardware", "node"]
pytestmark = AS_ROOT


LOCKS_ALL = """import fcntl, os, sys, time
for place, folders, files in os.walk(sys.argv[1]):
    for name in (place, *(os.path.join(place, file) for file in files)):
        try: fcntl.flock(os.open(name, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: pass
print(flush=True)
time.sleep(60)
"""


def test_a_user_who_locks_what_he_can_open_keeps_no_hook_waiting(node: Node) -> None:
    assert node.start(7) == 0
    attacker = as_user(LOCKS_ALL, node.run, uid=OTHER)
    try:
        assert node.start(8) == 0
        node.stop(7), node.stop(8)
        assert node.left() == []
    finally:
        attacker.kill()
        attacker.communicate()


STOPS_OWN = """import os, signal, sys, time
print(flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    for pid in os.listdir("/proc"):
        try:
            if not pid.isdigit() or int(pid) == os.getpid() or os.stat("/proc/" + pid).st_uid != os.getuid(): continue
            if sys.argv[1] not in open(f"/proc/{pid}/cmdline").read(): continue  # of another test
            os.kill(int(pid), signal.SIGSTOP)
            for file in os.listdir(f"/proc/{pid}/fd"):
                link = os.readlink(f"/proc/{pid}/fd/{file}")
                if "/locks/" in link or link.endswith("/mps"): print("a lock", flush=True)
        except OSError: pass
"""


def test_a_user_who_stops_his_processes_and_looks_for_locks_in_them_harms_only_himself(node: Node) -> None:
    """While the hook asks his daemon to end, a process of his runs below it."""
    assert node.start(7) == 0
    attacker = as_user(STOPS_OWN, node.top)
    begin = time.monotonic()
    try:
        assert node.stop(7).returncode == 0
        assert time.monotonic() - begin < 4
    finally:
        attacker.kill()
        said, _ = attacker.communicate()
    assert said == ""
    assert node.left() == []


def test_an_epilog_waits_for_a_hook_that_ends_the_daemon_slowly(node: Node) -> None:
    """No attacker: a daemon that hears nothing takes longer than a second to end."""
    assert node.start(7) == node.start(8) == 0
    os.kill(node.daemon(), signal.SIGSTOP)
    stops = [threading.Thread(target=node.stop, args=(job,)) for job in (7, 8)]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join()
    assert node.left() == []


def test_a_daemon_that_another_hook_is_busy_with_is_left_to_it(node: Node) -> None:
    assert node.start(7) == 0
    node.record(7).unlink()
    with (node.run / f"locks/mps.{UID}").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begin = time.monotonic()
        assert node.hook("mps-stop").returncode == 0
        assert time.monotonic() - begin < 1
        assert len(node.processes()) == 1


def test_hooks_at_the_same_time_leave_one_daemon_or_none(node: Node) -> None:
    def both(job: int, pause_s: float) -> None:
        for _ in range(3):
            node.start(job)
            time.sleep(pause_s)
            node.stop(job)

    threads = [threading.Thread(target=both, args=(job, random.Random(job).random() / 20)) for job in range(1, 5)]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, len({pid for pid in node.processes() if _is_daemon(pid)}))
    for thread in threads:
        thread.join()
    assert most == 1
    assert node.left() == []


def _is_daemon(pid: int) -> bool:
    try:
        program, option, *_ = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return CONTROL.encode() in program and option == b"-f"  # without it, a command to one
    except (OSError, ValueError):
        return False

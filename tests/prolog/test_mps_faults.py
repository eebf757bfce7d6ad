"""Control daemons of MPS that do not start or hear nothing, and directories, processes and jobs that are none."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.prolog.mps_node import AS_ROOT, CONTROL, UID, Node, hardware, node, plant

__all__ = ["hardware", "node"]
pytestmark = AS_ROOT


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nexec sleep 60\n", None])
def test_a_daemon_that_does_not_start_costs_two_seconds_at_most(node: Node, program: str | None) -> None:
    path = node.top / "bin" / CONTROL
    path.unlink()
    if program:
        path.write_text(program)
        path.chmod(0o755)
    begin = time.monotonic()
    assert node.start(7) == 1
    assert time.monotonic() - begin < 2
    assert node.lines(7) == node.left() == []


def test_a_daemon_that_hears_nothing_is_ended_all_the_same(node: Node) -> None:
    assert node.start(7) == 0
    os.kill(node.daemon(), signal.SIGSTOP)
    begin = time.monotonic()
    assert node.stop(7).returncode == 0
    assert time.monotonic() - begin < 4
    assert node.left() == []


@pytest.mark.parametrize("later", [-1000, 1])
def test_another_process_with_the_daemons_number_is_let_alone(node: Node, later: int) -> None:
    innocent = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert node.start(7) == 0
    os.kill(node.daemon(), signal.SIGKILL)
    ticks = Path(f"/proc/{innocent.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    (node.mps / str(UID) / "daemon").write_text(f"{innocent.pid} {int(ticks) + later}\n")
    assert node.stop(7).returncode == 0
    assert innocent.poll() is None
    innocent.kill()
    innocent.wait()
    assert node.left() == []


WRONG = [("x",), ("7", "x"), ("7", UID, ""), ("7", UID, "0;id"), ("7", UID, "0", "0"), ("7", UID, "0", "101"),
         ("7", UID, "0", "50", "-1"), ("-7", UID, "0"), ("../7", UID, "0"), ("7", "../..", "0"),
         ("7", 4_111_222, "0")]  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG, ids=lambda arguments: "-".join(map(str, arguments)))
def test_what_is_no_job_starts_nothing(node: Node, arguments: tuple[object, ...]) -> None:
    done = node.hook("mps-start", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("slurm-soda: MPS: ")
    assert node.left() == []
    assert list((node.run / "shares").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "file", "another's directory"])
@pytest.mark.parametrize("place", ["mps", f"mps/{UID}"])
def test_what_is_no_directory_of_root_is_not_used(node: Node, kind: str, place: str) -> None:
    target = node.top / "target"
    target.mkdir()
    path = node.run / place
    path.parent.mkdir(exist_ok=True)
    plant(kind, path, target)
    assert node.start(7) == 1
    assert node.lines(7) == list(target.iterdir()) == node.processes() == []


def test_only_root_can_put_anything_there(node: Node) -> None:
    """A user tries to make, replace and remove things where the hooks look, with a daemon of his own and without."""
    assert node.start(7) == 0
    base = node.mps / str(UID)
    script = """import os, random, sys
base, mine = sys.argv[1:]
top = os.path.dirname(base)
places = [top, base, *(base + name for name in ("/daemon", "/job.7", "/job.8", "/fresh", "/pipe", "/log")), top + "/fresh"]
acts = [lambda path: os.symlink("/etc", path), os.mkfifo, os.mkdir, os.unlink, os.rmdir,
        lambda path: os.rename(path, path + ".away"), lambda path: os.rename(mine, path),
        lambda path: os.chmod(path, 0o777),
        lambda path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)), lambda path: os.link(mine, path)]
random.seed(1)
for _ in range(10000):
    path, act = random.choice(places), random.choice(acts)
    try:
        act(path)
    except OSError:
        continue
    print(act, path)
"""
    mine = node.top / "mine"
    mine.mkdir()
    for name in ("pipe", "log"):  # his own: what he does with them is the next test
        os.chown(base / name, 0, 0)
    os.chown(mine, UID, UID)
    tried = subprocess.run(
        ["setpriv", f"--reuid={UID}", "--clear-groups", "/usr/bin/python3", "-c", script, str(base), str(mine)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert tried.stdout == ""
    node.stop(7)
    assert node.left() == []

"""Walls where Slurm says nothing, and where what the hooks start hangs, is killed or cannot be forked: in time, and shut."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.prolog.conftest import EPILOG_ENV, PROLOG_ENV
from tests.prolog.walls_node import Node, make_node

DELIVERY_S = 3.5
"""The event, on a busy machine."""
HANGS = "exec sleep 60"
GONE = "exit 0"
"""squeue knows no such job here."""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs processes of two users")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return make_node(tmp_path, (1, 2, 4))


@pytest.mark.parametrize("tool", ["squeue", "scontrol"])
def test_a_prolog_with_many_guests_ends_in_time_while_slurm_hangs(node: Node, tool: str) -> None:
    node.tool(
        "squeue", 'for word in "$@"; do case $word in --jobs=*) echo "${word#*=} ${word#*=} RUNNING" ;; esac; done'
    )
    node.tool(tool, HANGS)
    for guest in (11, 12, 13):
        node.guest(guest, 0)
    begun_s = time.monotonic()
    assert "Slurm does not answer: it starts without a GPU" in node.starts(10, "0,1")
    assert time.monotonic() - begun_s < 4 + DELIVERY_S
    assert node.records()["env.10"][0] == "CUDA_VISIBLE_DEVICES="


def test_an_epilog_with_many_guests_ends_in_time_while_slurm_hangs(node: Node) -> None:
    node.tool("squeue", HANGS)
    for guest in (11, 12, 13, 14):
        node.guest(guest, 0, host=10)
    begun_s = time.monotonic()
    assert "its guest 14 stays: Slurm does not answer" in node.run("epilog", EPILOG_ENV)
    assert time.monotonic() - begun_s < 1 + DELIVERY_S
    assert set(node.records()) == {f"guest.{guest}" for guest in (11, 12, 13, 14)}


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_a_shell_that_is_killed_gets_no_new_time(node: Node, hook: str) -> None:
    # Who started `timeout` is the shell that reads the parts.
    node.tool("squeue", "sleep 0.7; read -r _ _ _ shell _ </proc/$PPID/stat; kill -KILL $shell; exit 1")
    node.guest(11, 0, host=10)
    begun_s = time.monotonic()
    environ = {**(PROLOG_ENV if hook == "prolog" else EPILOG_ENV), "SLURM_JOB_ID": "9" if hook == "prolog" else "10"}
    node.run(hook, environ)
    assert time.monotonic() - begun_s < (4 if hook == "prolog" else 1) + DELIVERY_S


def link_to(node: Node, hook: str) -> Path:
    link = node.tools.parent / f"50-{hook}"
    link.symlink_to(node.installed.prefix / "libexec" / hook)
    return link


def run_link(node: Node, link: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    argv = [str(link), str(node.installed.socket), str(node.installed.spool)]
    return subprocess.run(argv, env=environ, cwd="/", capture_output=True, timeout=30, check=False)


@pytest.mark.parametrize("kills", ["kill -KILL $$", "kill -KILL $PPID", "exit 1", "sleep 2"])
def test_a_link_is_followed_though_readlink_is_killed_or_slow(node: Node, kills: str) -> None:
    real, left = shutil.which("readlink"), node.tools / "left"
    left.write_text("x" if kills.startswith("sleep") else "xxx")
    once = f'read -r kills <{left} || :\n[ -z "$kills" ] || {{ printf %s "${{kills#x}}" >{left}; {kills}; }}'
    node.tool("readlink", f'{once}\nexec {real} "$@"')
    node.shares.mkdir(parents=True, mode=0o700)
    assert run_link(node, link_to(node, "prolog"), PROLOG_ENV).returncode == 0
    assert set(node.records()) == {"gpus.10"}
    left.write_text("x")
    assert run_link(node, link_to(node, "epilog"), EPILOG_ENV).returncode == 0
    assert node.records() == {}


def test_a_link_that_nobody_resolves_lets_no_job_start_on_gpus(node: Node) -> None:
    node.tool("readlink", "kill -KILL $$")
    prolog = link_to(node, "prolog")
    done = run_link(node, prolog, PROLOG_ENV)
    assert (done.returncode, b"nothing says where" in done.stderr) == (1, True)
    plain = {name: value for name, value in PROLOG_ENV.items() if name != "SLURM_JOB_GPUS"}
    assert run_link(node, prolog, plain).returncode == 0
    assert run_link(node, link_to(node, "epilog"), EPILOG_ENV).returncode == 0


def processes_of(uid: int, stack: ExitStack, *argv: str) -> subprocess.Popen[bytes]:
    process = stack.enter_context(subprocess.Popen(argv, user=uid, group=uid, cwd="/"))
    stack.callback(process.kill)
    return process


@pytest.fixture
def open_node() -> Iterator[Node]:
    """One whose files another user than root may own."""
    with tempfile.TemporaryDirectory(prefix="walls-") as folder:
        Path(folder).chmod(0o755)
        yield make_node(Path(folder), (4, 5, 6))


@as_root
@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_a_moment_without_forks_opens_no_wall(open_node: Node, hook: str, spare: int) -> None:
    """The hook runs as a user who has as many processes as he may, for a second."""
    uid, node = 200_000 + os.getpid() % 50_000, open_node
    node.tool("squeue", GONE)
    if hook == "prolog":
        node.guest(11, 0)
    else:
        node.shares.mkdir(parents=True, mode=0o700)
        (node.shares / "gpus.10").write_text("0\n1000\n")
    for path in (node.tools.parent, *node.tools.parent.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    most = 8 + 1 + spare
    with ExitStack() as stack:
        processes_of(uid, stack, "sh", "-c", "for n in 1 2 3 4 5 6 7; do sleep 0.8 & done; wait")
        time.sleep(0.3)
        argv = [str(node.installed.prefix / "libexec" / hook), str(node.installed.socket), str(node.installed.spool)]
        done = subprocess.run(
            argv, env=PROLOG_ENV if hook == "prolog" else EPILOG_ENV, user=uid, group=uid, extra_groups=[], cwd="/",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (most, most)),
            capture_output=True, timeout=30, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(node.records()) == ({"gpus.10"} if hook == "prolog" else set())


@as_root
def test_only_slurmstepd_of_root_outlives_its_guest(node: Node) -> None:
    folder = node.tools.parent / "sbin"
    folder.mkdir()
    for parent in (folder, *list(folder.parents)[:-2]):
        parent.chmod(parent.stat().st_mode | 0o111)
    program = folder / "slurmstepd"
    shutil.copy(shutil.which("sleep") or "/", program)
    node.guest(11, 0, host=10)
    with ExitStack() as stack:
        daemon, users, roots = (
            processes_of(0, stack, str(program), "60"),
            processes_of(1000, stack, str(program), "60"),
            processes_of(0, stack, "sleep", "60"),
        )
        program.unlink()  # as after an upgrade
        node.group(11, daemon.pid, users.pid, roots.pid)
        node.run("epilog", {**EPILOG_ENV, "SLURM_JOB_ID": "11", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": ""})
        assert (users.wait(5), roots.wait(5)) == (-signal.SIGKILL, -signal.SIGKILL)
        assert daemon.poll() is None


@as_root
@pytest.mark.parametrize("dead", [True, False])
def test_beside_a_guest_without_processes_a_job_starts_though_slurm_is_silent(node: Node, dead: bool) -> None:
    """What is left is slurmstepd, which waits for Slurm to tell it that the guest has ended."""
    program = node.tools.parent / "slurmstepd"
    shutil.copy(shutil.which("sleep") or "/", program)
    node.tool("squeue", HANGS)
    node.guest(11, 0)
    with ExitStack() as stack:
        pids = [processes_of(0, stack, str(program), "60").pid]
        if not dead:  # nobody has waited for it: it can be killed as often as one likes
            pids.append(processes_of(1000, stack, "true").pid)
            time.sleep(0.5)
        node.group(11, *pids)
        said = node.starts(10, "0")
    assert ("no process of a guest is left: it starts" in said) is dead
    assert ("env.10" in node.records()) is not dead


def test_a_guest_that_came_back_as_a_plain_job_is_left_alone(tmp_path: Path) -> None:
    node = make_node(tmp_path, (3, 4, 5))
    node.tool(
        "squeue", 'for word in "$@"; do case $word in --jobs=*) echo "${word#*=} ${word#*=} RUNNING" ;; esac; done'
    )
    asked = node.tools.parent / "asked"
    again = f"rm {node.shares}/guest.12; printf '3\\n1000\\n' >{node.shares}/gpus.12"
    node.tool("scontrol", f'echo "$*" >>{asked}; case "$*" in *" 12") {again} ;; esac')
    with ExitStack() as stack:
        plain = processes_of(os.getuid(), stack, "sleep", "60")
        node.guest(11, 0)
        node.guest(12, 0)
        node.group(12, plain.pid)
        assert "guest 11 does not leave its GPUs" in node.starts(10, "0")
        assert plain.poll() is None
    lines = asked.read_text().splitlines()
    assert lines.count("requeue Incomplete 12") == 1
    assert lines.count("requeue Incomplete 11") > 1


def test_a_record_stays_not_though_its_removal_is_killed(node: Node) -> None:
    left = node.tools / "left"
    left.write_text("xxxxx")
    real = shutil.which("rm")
    killed = f'read -r kills <{left} || :\n[ -z "$kills" ] || {{ printf %s "${{kills#x}}" >{left}; kill -KILL $$; }}'
    node.tool("rm", f'{killed}\nexec {real} "$@"')
    node.guest(10, 3)
    node.starts(10, "0")
    assert set(node.records()) == {"gpus.10"}


@pytest.mark.parametrize(("answer", "starts"), [("kill -KILL $$", False), ("echo Invalid job id; exit 1", True)])
def test_a_job_of_which_slurm_says_nothing_may_be_a_guest(node: Node, answer: str, starts: bool) -> None:
    node.tool("squeue", 'case "$*" in *%T*) exit 1 ;; *) echo 12 ;; esac')
    node.tool("scontrol", answer)
    (node.installed.prefix / "libexec/share-walls").unlink()
    (node.installed.prefix / "libexec/share-start").unlink()
    assert ("it goes back into the queue" in node.starts(10, "0")) is not starts


def test_mps_is_not_swept_where_the_time_is_used_up(node: Node) -> None:
    swept = node.tools.parent / "swept"
    stop = node.installed.prefix / "libexec/mps-stop"
    stop.write_text(f"#!/bin/sh\n: >{swept}\n")
    stop.chmod(0o755)
    base = node.shares.parent / "mps/1000"
    base.mkdir(parents=True)
    node.starts(9, "3")
    assert swept.exists()
    swept.unlink()
    node.guest(11, 0)
    node.starts(10, "0")
    assert not swept.exists()

"""Walls on a node: who is put back, and how, and what keeps others off whatever a user calls his programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.prolog.conftest import CHECKOUT, EPILOG_ENV, PROLOG_ENV
from tests.prolog.walls_node import GUEST_ENV, Node, make_node

GUEST_ENDS = {**EPILOG_ENV, "SLURM_JOB_ID": "11", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": ""}
REFUSES = "echo refused >&2; exit 1"
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs processes of two users")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return make_node(tmp_path, (2, 3, 6))


def slurm(node: Node, scontrol: str, *, name: str = "10", batch: int = 1, requeue: int = 1) -> Path:
    """Job 10 goes by this name, and scontrol does that. What it and scancel were asked."""
    asked = node.tools.parent / "asked"
    asked.touch()
    node.tool(
        "squeue",
        f"""case "$*" in
*BatchFlag*) echo {batch} ;;
*Requeue*) echo {requeue} ;;
*--jobs=10*) echo "10 {name} RUNNING" ;;
*--jobs=*) for word in "$@"; do case $word in --jobs=*) echo "${{word#*=}} ${{word#*=}} RUNNING" ;; esac; done ;;
esac""",
    )
    node.tool("scontrol", f'echo "$*" >>{asked}\n{scontrol}')
    node.tool("scancel", f'echo "cancel $*" >>{asked}')
    return asked


def test_no_hook_needs_a_place_for_here_documents() -> None:
    """Shells other than dash write them to /tmp, which users can fill: an answer of Slurm's would be none."""
    hooks = [path for room in ("prolog", "epilog") for path in (CHECKOUT / room).iterdir() if not path.suffix]
    assert len(hooks) > 10
    assert not [hook.name for hook in hooks if hook.is_file() and "<<" in hook.read_text()]


@pytest.mark.parametrize("options", ["braceexpand:errexit:nounset", "noglob"])
def test_options_of_a_shell_are_not_taken_from_a_site_s_own_script(node: Node, options: str) -> None:
    shell = node.tools.parent / "sh"
    shell.symlink_to(shutil.which("bash") or pytest.skip("bash is not here"))
    for hook in ("prolog", "epilog"):
        path = node.installed.prefix / "libexec" / hook
        path.write_text(path.read_text().replace("#!/bin/sh", f"#!{shell}", 1))
    asked = slurm(node, "")
    node.guest(11, 0)
    node.run("prolog", {**PROLOG_ENV, "SHELLOPTS": options})
    assert "requeue Incomplete 11" in asked.read_text()
    asked.write_text("")
    node.guest(12, 0, host=10)
    node.run("epilog", {**EPILOG_ENV, "SHELLOPTS": options})
    assert "requeue Incomplete 12" in asked.read_text()


def test_a_part_of_a_heterogeneous_job_goes_back_with_the_whole(node: Node) -> None:
    """Slurm knows no requeue of a part: "Invalid job id", or "not heterogeneous job leader"."""
    asked = slurm(node, f'case "$*" in *" 9") ;; *) {REFUSES} ;; esac', name="9+1")
    node.guest(11, 0)
    node.starts(10, "0")
    assert "requeue Incomplete 9" in asked.read_text().splitlines()
    assert "cancel" not in asked.read_text()


def test_a_hook_that_dies_leaves_no_suspended_guest_held(tmp_path: Path) -> None:
    """Slurm holds a job that is suspended when it is requeued."""
    node = make_node(tmp_path, (2, 3, 4))
    at = node.tools.parent / "state"
    at.write_text("SUSPENDED")
    node.tool("squeue", f'case "$*" in *--jobs=11*) echo "11 11 $(/bin/cat {at})" ;; esac')
    node.tool(
        "scontrol",
        f"""case "$(/bin/cat {at}) $*" in
*resume*) echo RUNNING >{at} ;;
SUSPENDED*requeue*) echo HELD >{at} ;;
RUNNING*requeue*) echo PENDING >{at} ;;
esac
case "$*" in *requeue*) read -r _ _ _ shell _ </proc/$PPID/stat; kill -KILL $shell ;; esac""",
    )
    node.guest(11, 0, host=10)
    node.run("epilog", EPILOG_ENV)
    assert at.read_text() == "PENDING\n"


@pytest.mark.parametrize("requeue", [0, 1])
def test_a_job_that_is_not_to_be_requeued_goes_back_once(node: Node, requeue: int) -> None:
    may = node.tools / "may"
    if requeue:
        may.touch()
    scontrol = f"""case "$*" in
*"requeue Incomplete 10") [ -e {may} ] || {{ {REFUSES}; }} ;;
*"jobid=10 Requeue=1") : >{may} ;;
*Incomplete*) {REFUSES} ;;
esac"""
    asked = slurm(node, scontrol, requeue=requeue)
    node.guest(11, 0)
    node.starts(10, "0")
    own = [line for line in asked.read_text().splitlines() if "10" in line]
    again = ["update jobid=10 Requeue=1", "requeue Incomplete 10", "update jobid=10 Requeue=0"]
    assert own == ["requeue Incomplete 10", *([] if requeue else again)]


@pytest.mark.parametrize(
    ("scontrol", "batch", "cancelled"),
    [(REFUSES, 0, True), (REFUSES, 1, False), ("kill -KILL $$", 0, False), ("exit 127", 0, False)],
)
def test_only_a_job_that_slurm_cannot_requeue_is_cancelled(
    node: Node, scontrol: str, batch: int, cancelled: bool
) -> None:
    asked = slurm(node, scontrol, batch=batch)
    node.guest(11, 0)
    node.starts(10, "0")
    assert ("cancel 10" in asked.read_text()) is cancelled


@as_root
@pytest.mark.parametrize(("scontrol", "killed"), [(REFUSES, True), ("exit 127", False)])
def test_a_guest_is_killed_where_slurm_refuses_not_where_scontrol_fails(
    tmp_path: Path, scontrol: str, killed: bool
) -> None:
    node = make_node(tmp_path, (3, 4, 5))
    slurm(node, scontrol)
    node.guest(11, 0, host=10)
    with subprocess.Popen(["sleep", "60"], user=1000, cwd="/") as guest:
        node.group(11, guest.pid)
        node.run("epilog", EPILOG_ENV)
        assert (guest.poll() is not None) is killed
        guest.kill()


def test_commands_that_cannot_be_run_for_a_moment_tell_nothing_of_guests(node: Node) -> None:
    (node.tools / "squeue").unlink()
    (node.tools / "squeue").write_text("")
    (node.tools / "squeue").chmod(0o644)
    assert "Slurm does not tell whose guests are here" in node.starts(10, "0")


def test_a_plain_job_gets_no_limits_of_a_guest_whose_record_came_back(node: Node) -> None:
    record = "soda-guest:1,hosts=7,gpus=3,threads=50,memory=4000,undo="
    node.tool("squeue", 'case "$*" in *%U*) echo "12 12 1000 RUNNING" ;; *) exit 1 ;; esac')
    node.tool("scontrol", f'echo "JobId=12 JobName=x Extra={record} "')
    libexec, told = node.installed.prefix / "libexec", node.tools.parent / "told"
    (node.tools.parent / "sharing.conf").touch()
    (libexec / "mps-settings").write_text("mps_wanted() { return 0; }\n")
    (libexec / "mps-start").write_text(f'#!/bin/sh\nprintf "<%s>" "$@" >{told}\n')
    (libexec / "mps-start").chmod(0o755)
    node.starts(10, "0")
    assert "guest.12" in node.records()
    assert told.read_text() == "<10><1000><0><><>"


@pytest.mark.parametrize("exe", ["slurmd", "slurmd (deleted)"])
def test_slurm_s_commands_are_found_beside_slurmd_though_a_site_s_script_runs_the_hook(node: Node, exe: str) -> None:
    asked = slurm(node, "")
    prefix = node.tools.parent / "apps/slurm"
    for folder in ("bin", "sbin"):
        (prefix / folder).mkdir(parents=True)
    for tool in ("squeue", "scontrol"):
        (node.tools / tool).rename(prefix / "bin" / tool)
    slurmd = prefix / "sbin/slurmd"
    shutil.copy(shutil.which("dash") or pytest.skip("dash is not here"), slurmd)
    hook = f"{node.installed.prefix}/libexec/prolog {node.installed.socket} {node.installed.spool}"
    script = node.tools.parent / "site.sh"
    script.write_text(f"#!/bin/sh\n[ {exe.count('d')} = 2 ] || rm {slurmd}\n{hook}\nexit 0\n")
    script.chmod(0o755)
    node.guest(11, 0)
    subprocess.run([str(slurmd), "-c", f"{script}; exit 0"], env=PROLOG_ENV, cwd="/", check=True, timeout=30)
    assert "requeue Incomplete 11" in asked.read_text()


def test_a_job_without_gpus_is_no_guest_by_what_an_earlier_run_left(node: Node) -> None:
    node.guest(10, 0)
    (node.shares / "env.10").write_text("end\n")
    node.starts(10, "")
    assert node.records() == {}


@pytest.mark.parametrize("written", [True, False])
def test_a_job_that_is_put_back_waits_where_nothing_hides_gpus(node: Node, written: bool) -> None:
    slept = node.tools.parent / "slept"
    slept.touch()
    real = shutil.which("sleep")
    node.tool("sleep", f'echo "$1" >>{slept}; exec {real} 0.1')
    slurm(node, f'case "$*" in *" 10") ;; *) {REFUSES} ;; esac')
    node.guest(11, 0)
    if not written:
        (node.shares / "env.10").mkdir()
    node.starts(10, "0")
    assert ("2" in slept.read_text().splitlines()) is not written


def in_own_group(node: Node, job: int) -> None:
    own = f"4:devices:/slurm_n1/uid_1000/job_{job}/step_extern\n0::/\n"
    (node.tools.parent / "own-groups").write_text(own)


def test_no_guest_starts_where_hooks_run_in_their_job(node: Node) -> None:
    """PrologFlags=RunInJob: nobody could tell when it is gone."""
    asked = slurm(node, "")
    node.starts(7, "0")
    in_own_group(node, 10)
    extra = {"SLURM_JOB_EXTRA": "soda-guest:1,hosts=7,gpus=0,undo=", "SLURM_JOB_ID": "10"}
    assert "PrologFlags=RunInJob" in node.run("prolog", {**GUEST_ENV, **extra})
    assert asked.read_text() == "requeue Incomplete 10\n"


def test_an_epilog_in_its_job_does_not_kill_itself(node: Node) -> None:
    node.guest(11, 0)
    in_own_group(node, 11)
    with subprocess.Popen(["sleep", "60"], cwd="/") as other:
        node.group(11, other.pid)
        node.run("epilog", GUEST_ENDS)
        assert other.poll() is None
        other.kill()
    assert node.records() == {}


@as_root
def test_a_users_program_that_runs_as_root_is_no_slurmstepd(node: Node) -> None:
    """Such as su, by a link of that name."""
    program = node.tools.parent / "slurmstepd"
    shutil.copy(shutil.which("sleep") or "/", program)
    node.guest(11, 0)

    runs = f"import os; os.setresuid(1000, 0, 0); os.execv({str(program)!r}, ['slurmstepd', '60'])"
    with subprocess.Popen([sys.executable, "-c", runs], cwd="/") as users:
        while Path(f"/proc/{users.pid}/comm").read_text() != "slurmstepd\n":
            time.sleep(0.05)
        node.group(11, users.pid)
        node.run("epilog", GUEST_ENDS)
        time.sleep(0.2)
        assert users.poll() == -signal.SIGKILL


def test_a_process_of_another_namespace_is_not_taken_for_the_hook(node: Node) -> None:
    """It is 0 in the list, which to `kill` is the process group of whoever asks."""
    node.guest(11, 0)
    node.group(11, 0)
    hook = [str(node.installed.prefix / "libexec/prolog"), str(node.installed.socket), str(node.installed.spool)]
    environ = {**PROLOG_ENV, "SLURM_JOB_GPUS": "0"}
    done = subprocess.run(
        hook, env=environ, cwd="/", capture_output=True, start_new_session=True, timeout=30, check=False
    )
    assert (done.returncode, b"it starts without a GPU" in done.stderr) == (0, True)

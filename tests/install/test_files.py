"""Which files ``make install`` puts on a machine of each role, as make says it would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SHARE = {"share-records", "share-start", "share-walls", "share-guest", "share-end"}
MPS = {"mps-settings", "mps-daemon", "mps-start", "mps-stop"}
NODE = {"prolog", "epilog", "sharing.conf", "soda-deliver-event", "soda-agent.service"} | SHARE | MPS
CONTROLLER = {"epilogctld", "soda.lua", "soda_hints.lua", "soda_routes.lua", "soda_guests.lua", "sodad.service"} | {
    "sodad-expiry.service",
    "sodad-expiry.timer",
    "soda-release-lifts",
    "prometheus.yml",
    "slurm-soda.rules.yml",
    "slurm-soda-dashboard.json",
}
EVERYWHERE = {"soda_spank.so"}


@cache
def commands(role: str) -> str:
    done = subprocess.run(
        [
            "make",
            "-n",
            "-C",
            TOP,
            "install",
            *([f"ROLE={role}"] if role else []),
            "PREFIX=/prefix",
            f"PYTHON={sys.executable}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("role", "files"),
    [
        ("", NODE | CONTROLLER | EVERYWHERE),
        ("all", NODE | CONTROLLER | EVERYWHERE),
        ("agent", NODE | EVERYWHERE),
        ("controller", CONTROLLER | EVERYWHERE),
        ("login", EVERYWHERE),
    ],
)
def test_files_of_a_role(role: str, files: set[str]) -> None:
    copied = {
        Path(word).name for line in re.findall(r"install/place\.sh (.*)", commands(role)) for word in line.split()
    }
    assert copied & (NODE | CONTROLLER | EVERYWHERE) == files
    assert f"install/python.sh '{role or 'all'}' '/prefix'" in commands(role)


@pytest.mark.parametrize("earlier", [True, False])
def test_what_is_installed_is_renewed_too(tmp_path: Path, earlier: bool) -> None:
    """ROLE=agent on a controller; earlier releases kept no list of roles, their commands told them."""
    if earlier:
        for name in ("bin/sodad", "bin/sodactl", "lib/python3.11/site-packages/psycopg/__init__.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
    else:
        current = tmp_path / "lib/slurm-soda/current"
        current.mkdir(parents=True)
        (current / "roles").write_text("controller\npostgresql\n")
    known = subprocess.run([TOP / "install/installed.sh", tmp_path], capture_output=True, text=True, check=True).stdout
    assert known.split() == ["controller", "postgresql"]
    make = ["make", "-n", "-C", TOP, "install", "ROLE=agent", f"PREFIX={tmp_path}", f"PYTHON={sys.executable}"]
    done = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    assert all(name in done for name in NODE | CONTROLLER | EVERYWHERE)


@pytest.mark.parametrize("role", ["all", "controller"])
def test_the_controllers_state_is_slurms(role: str) -> None:
    assert "install -d -o 'slurm' -g 'slurm' -m 755 /var/lib/slurm-soda\n" in commands(role)


def test_sodad_runs_as_slurm_user(tmp_path: Path) -> None:
    """SlurmUser has another name at many sites: make asks slurmctld, or takes the administrator's word."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\nprintf 'SlurmctldPort           = 6817\\nSlurmUser               = nobody(65534)\\n'\n"
    )
    scontrol.chmod(0o755)
    make = ["make", "-n", "-C", TOP, "install", "ROLE=controller", f"PYTHON={sys.executable}"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    group = subprocess.run(["id", "-gn", "nobody"], capture_output=True, text=True, check=True).stdout.strip()
    for argv, owner in ((make, ("nobody", group)), ([*make, "SLURM_USER=hpc", "SLURM_GROUP=batch"], ("hpc", "batch"))):
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}).stdout
        user, its_group = owner
        assert f"install -d -o '{user}' -g '{its_group}' -m 755 /var/lib/slurm-soda" in done
        assert f"s|^User=slurm$|User={user}|; s|^Group=slurm$|Group={its_group}|" in done


@pytest.mark.parametrize("role", ["agent", "login"])
def test_other_machines_need_no_user_slurm(role: str) -> None:
    assert "-o 'slurm'" not in commands(role)


@pytest.mark.parametrize(
    ("role", "units"),
    [("agent", ["soda-agent"]), ("controller", ["sodad", "sodad-expiry", "sodad-expiry"]), ("login", [])],
)
def test_units_start_from_the_prefix(role: str, units: list[str]) -> None:
    adapted = re.findall(
        r"place\.sh 644 \S+ -e 's\|=/opt/slurm-soda/\|=/prefix/\|' (.*)", commands(role).replace("\\\n", "")
    )
    assert [Path(word).stem for line in adapted for word in line.split() if "/" in word and "|" not in word] == units


def test_nothing_is_written_where_slurm_may_read_it() -> None:
    """Every file gets its place by a rename; directories are made."""
    copies = re.findall(r"(?m)(?:^|\|\| |\t)((?:install|sed|cp) (?!-d ).*)", commands("all"))
    assert copies == []


@pytest.mark.parametrize(("role", "source"), [("agent", "prolog/prolog"), ("agent", "agent/soda-agent.service")])
def test_who_reads_meanwhile_never_misses_a_file(tmp_path: Path, role: str, source: str) -> None:
    """A job that starts during an installation, however slow, runs the whole old prolog or the whole new one."""
    there, pipe = tmp_path / "there" / Path(source).name, tmp_path / Path(source).name
    there.parent.mkdir()
    there.write_bytes(b"old\n")
    there.chmod(0o755)
    os.mkfifo(pipe)
    (copying,) = [line for line in commands(role).replace("\\\n", "").splitlines() if f" {source}" in line]
    copying = copying.replace(source, str(pipe)).replace("/prefix/libexec", str(there.parent))
    copying = copying.replace("/etc/systemd/system", str(there.parent))
    installation = subprocess.Popen(copying, shell=True, cwd=TOP)
    with pipe.open("wb", buffering=0) as half:
        half.write(b"half of ")
        for _ in range(50):
            assert there.read_bytes() == b"old\n"
            assert os.access(there, os.X_OK)
            time.sleep(0.002)
        half.write(b"the new\n")
    assert installation.wait(10) == 0
    assert there.read_bytes() == b"half of the new\n"
    assert not [path for path in there.parent.iterdir() if path.name.startswith(".")]


def test_the_built_parts_are_placed_too(tmp_path: Path) -> None:
    """The compiled program, with all its bytes and its mode."""
    program = tmp_path / "build" / "soda-deliver-event"
    program.parent.mkdir()
    program.write_bytes(bytes(range(256)) * 100)
    os.utime(program, (2**31, 2**31))  # newer than its source, so that nothing is compiled
    subprocess.run(
        ["make", "-s", "-C", TOP / "wire", "install", f"LIBEXECDIR={tmp_path}/new/libexec", f"BUILD={program.parent}"],
        check=True,
    )
    placed = tmp_path / "new" / "libexec" / program.name
    assert placed.read_bytes() == program.read_bytes()
    assert placed.stat().st_mode & 0o777 == 0o755

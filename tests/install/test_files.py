"""Which files ``make install`` puts on a machine of each role, as make says it would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
NODE = {"prolog", "epilog", "soda-deliver-event", "soda-agent.service"}
CONTROLLER = {"epilogctld", "soda.lua", "soda_hints.lua", "soda_routes.lua", "sodad.service"} | {
    "sodad-expiry.service",
    "sodad-expiry.timer",
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
    lines = re.findall(r"(?m)(?:^|\|\| )install (?!-d )(.*)", commands(role))
    copied = {Path(word).name for line in lines for word in line.split()[:-1]}
    assert copied & (NODE | CONTROLLER | EVERYWHERE) == files
    assert f"install/python.sh '{role or 'all'}' '/prefix'" in commands(role)


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
    adapted = re.findall(r"sed -i 's\|=/opt/slurm-soda/\|=/prefix/\|' (.*)", commands(role))
    assert [Path(word).stem for line in adapted for word in line.split()] == units

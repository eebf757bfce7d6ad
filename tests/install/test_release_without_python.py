"""``soda-release-lifts``: lifts end with sodad also where its Python is gone. On real Slurm: tests/slurm/test_expiry.py."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.epoch import LOCK_NAME
from slurm_soda.daemon.cycle.release_stamp import STAMP_NAME
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.slurm_ext.errors import SEARCH_PATH
from slurm_soda.sodactl.control.release_lifts import WATCH_S

SCRIPT = Path(__file__).parents[2] / "daemon" / "soda-release-lifts"
NO_PROCESS = 2**22 + 1
"""More than Linux gives."""


@dataclass
class Site:
    """A prefix without sodactl, a state directory, and commands of Slurm that keep SiteFactors in files."""

    top: Path
    jobs: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("libexec", "bin", "slurm", "state", "factors"):
            (self.top / folder).mkdir()
        text = SCRIPT.read_text().replace(f"PATH={SEARCH_PATH}", f"PATH={self.top}/slurm:{SEARCH_PATH}")
        self.program(self.top / "libexec" / SCRIPT.name, text)
        factors = self.top / "factors"
        self.slurm("sprio", f"cd {factors}; for job in [0-9]*; do echo $job $(cat $job); done; echo 99 -2147483648")
        self.slurm("squeue", f"cd {factors}; ls; echo 99; echo 700")
        self.slurm("scontrol", f'echo "$*" >>{self.top}/sent; IFS=,; for job in ${{2#JobId=}}; do '
                   f'[ ! -e {factors}/$job ] || echo ${{3#SiteFactor=}} >{factors}/$job; done')  # fmt: skip
        for job, factor in ((5, 0), (6, 1200), (7, 3)):
            (factors / str(job)).write_text(f"{factor}\n")

    @staticmethod
    def program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def slurm(self, name: str, lines: str) -> None:
        self.program(self.top / "slurm" / name, f"#!/bin/sh\n{lines}\n")

    def sodactl(self, lines: str) -> None:
        self.program(self.top / "bin" / "sodactl", f"#!/bin/sh\n{lines}\n")

    @property
    def lock(self) -> Path:
        return self.top / "state" / LOCK_NAME

    @property
    def stamp(self) -> Path:
        return self.top / "state" / STAMP_NAME

    def locked(self, *, pid: int = NO_PROCESS, age_s: float = 3600, mark: str = "") -> None:
        self.lock.write_text(f"{pid}\n{mark}\n")
        os.utime(self.lock, (time.time() - age_s,) * 2)

    def run(self) -> tuple[int, str]:
        argv = [self.top / "libexec" / SCRIPT.name, self.top / "state"]
        done = subprocess.run(argv, env={}, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stderr

    def sent(self) -> list[str]:
        there = self.top / "sent"
        lines = there.read_text().splitlines() if there.exists() else []
        there.unlink(missing_ok=True)
        return lines


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("damage", ["gone", "no interpreter", "no package"])
def test_what_is_lifted_is_taken_back(site: Site, damage: str) -> None:
    if damage == "no interpreter":
        site.program(site.top / "bin" / "sodactl", "#!/nowhere/bin/python\n")
    if damage == "no package":
        site.program(site.top / "bin" / "sodactl", "#!/usr/bin/python3 -S\nimport slurm_soda_is_gone\n")
    site.locked()
    status, said = site.run()
    assert (status, site.sent()) == (0, ["update JobId=6,7,99,700 SiteFactor=0"]), said
    assert "make install mends it" in said
    assert site.stamp.is_file()
    (site.top / "factors" / "7").write_text("8\n")  # a command of the dead sodad that was under way
    assert (site.run()[0], site.sent()) == (0, ["update JobId=7 SiteFactor=0"])


def test_sodactls_own_answer_holds(site: Site) -> None:
    site.locked()
    for status in (0, 1):
        site.sodactl(f'[ "$*" != "release-lifts --unless-alive" ] || exit {status}')
        assert (site.run()[0], site.sent()) == (status, [])


def test_a_sodad_that_lives_keeps_its_lifts(site: Site) -> None:
    site.locked(pid=os.getpid(), age_s=20)
    status, said = site.run()
    assert (status, site.sent(), "sodad lives" in said) == (0, [], True)
    for pid, age_s in ((os.getpid(), 40), (os.getpid(), -60), (NO_PROCESS, 1)):
        site.locked(pid=pid, age_s=age_s)
        site.stamp.unlink(missing_ok=True)
        (site.top / "factors" / "6").write_text("1\n")
        assert (site.run()[0], len(site.sent())) == (0, 1)


def test_where_no_sodad_has_run_site_factors_are_the_sites(site: Site) -> None:
    assert (site.run()[0], site.sent(), site.stamp.exists()) == (0, [], False)
    site.lock.symlink_to("/etc/passwd")
    assert (site.run()[0], site.sent()) == (0, [])


@pytest.mark.parametrize(
    ("files", "resets"),
    [
        ({"soda.db": "rewrite{\"NumCPUs\": \"4\"}"}, False),
        ({"soda.db": "order{\"SiteFactor\": \"4\"}"}, True),
        ({"soda.db": "", "soda.db-wal": "\0order{\"SiteFactor\": \"4\"}\0"}, True),
        ({}, True),
    ],
)  # fmt: skip
def test_where_sodad_never_lifted_site_factors_are_the_sites(site: Site, files: dict[str, str], resets: bool) -> None:
    for name, text in files.items():
        (site.top / "state" / name).write_text(text)
    site.locked(mark=f"store {site.top}/state/soda.db")
    assert (site.run()[0], bool(site.sent())) == (0, resets)


def test_what_the_site_sets_afterwards_stays(site: Site) -> None:
    """Nobody looks any more two minutes after the lifts were gone, until a sodad has run again."""
    site.locked()
    assert (site.run()[0], len(site.sent())) == (0, 1)
    os.utime(site.stamp, (time.time() - WATCH_S - 60,) * 2)
    (site.top / "factors" / "7").write_text("8\n")
    assert (site.run()[0], site.sent()) == (0, [])
    site.locked(age_s=60)
    assert (site.run()[0], site.sent()) == (0, ["update JobId=7,99,700 SiteFactor=0"])


def test_a_slurm_that_does_not_answer_is_asked_again_later(site: Site) -> None:
    site.locked()
    site.slurm("sprio", "exit 1")
    status, said = site.run()
    assert (status, site.sent(), site.stamp.exists(), "sprio fails" in said) == (1, [], False, True)
    site.slurm("sprio", "echo 6 1; echo '7; reboot 3'; echo x 5")
    site.slurm("scontrol", f'echo "$*" >>{site.top}/sent; exit 1')
    assert (site.run()[0], site.stamp.exists()) == (1, False)
    assert {word for line in site.sent() for word in re.split("[ ,]", line)} <= {
        "update", "JobId=6", "5", "7", "99", "700", "SiteFactor=0",
    }  # fmt: skip


def test_its_times_are_sodads() -> None:
    times = re.search(r"LEASE_S=(\d+) WATCH_S=(\d+)", SCRIPT.read_text())
    assert times is not None
    assert [float(one) for one in times.groups()] == [Settings().cycle.lease_s, WATCH_S]
    assert f"PATH={SEARCH_PATH}\n" in SCRIPT.read_text()


SHARED = "gres/sharedgpu:g2:1"
RECORD = "soda-guest:1,hosts=5,gpus=2,undo="
PLAIN = "update JobId=8 TresPerNode=gres/gpu:1 ReqNodeList= Extra="


@pytest.mark.parametrize(
    ("node", "whole", "extra", "sent"),
    [
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:a100:1;ReqNodeList=n[1-2]",
         "update JobId=8 TresPerNode=gres/gpu:a100:1 ReqNodeList=n[1-2] Extra="),
        ("", SHARED, f"{RECORD}TresPerJob=gres/gpu;ReqNodeList=", "update JobId=8 TresPerJob=gres/gpu ReqNodeList= Extra="),
        (SHARED, "", f"{RECORD}TresPerTask=cpu:4,gres/gpu=1;TresPerNode=;ReqNodeList=",
         "update JobId=8 TresPerTask=cpu:4,gres/gpu=1 TresPerNode= ReqNodeList= Extra="),
        (f"{SHARED},gres/gpu:1", "", f"{RECORD}TresPerNode=gres/gpu:2;ReqNodeList=",
         "update JobId=8 TresPerNode=gres/gpu:2 ReqNodeList= Extra="),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:8;ReqNodeList=", PLAIN),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:1,{SHARED};ReqNodeList=", PLAIN),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:1;TresPerNode=gres/gpu:1;ReqNodeList=", PLAIN),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:1;TresPerTask=cpu:64;ReqNodeList=", PLAIN),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:1;Priority=9;ReqNodeList=", PLAIN),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:1;ReqNodeList=$(touch /tmp/evil)`id`", PLAIN),
        (SHARED, "", f"{RECORD}TresPerNode=gres/gpu:1\\n;ReqNodeList=*'\"", PLAIN),
        (SHARED, "", "soda-guest:2,undone", PLAIN),
        (SHARED, "", "mine", None),
        ("gres/gpu:1", "", f"{RECORD}TresPerNode=gres/gpu:1;ReqNodeList=", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("emptied", [False, True])
def test_a_waiting_guest_gets_its_own_request_and_no_more(
    site: Site, node: str, whole: str, extra: str, sent: str | None, emptied: bool
) -> None:
    """Also where the state directory was emptied."""
    site.slurm(
        "squeue",
        f"""case "$*" in *tres-per-node*) echo '8|cpu=4,mem=1G,node=1,gres/sharedgpu=1|1|{node}|{whole}|4|' ;; esac""",
    )
    (site.top / "shown").write_text(
        f"JobId=8 JobName=x Extra={RECORD}TresPerNode=gres/gpu:4\n   Extra={extra} \n   Tres=1\n"
    )
    site.slurm(
        "scontrol", f'if [ "$1" = show ]; then cat {site.top}/shown; else printf "%s\\n" "$*" >>{site.top}/sent; fi'
    )
    site.slurm("sprio", "")
    if not emptied:
        site.locked()
    status, said = site.run()
    found = [_by_field(line) for line in site.sent()]
    assert (status, found) == (0, [_by_field(sent)] if sent else []), said


def test_guests_that_run_are_named(site: Site) -> None:
    """Their prolog and epilog must stay: nothing else keeps others off their GPUs."""
    row = f"|cpu=4,mem=1G,node=1,gres/sharedgpu=1|1|{SHARED}||4|"
    site.slurm("squeue", f"""case "$*" in *RUNNING*tres-per-node*) echo '8{row}'; echo '9_3{row}' ;; esac""")
    site.slurm("sprio", "")
    site.locked()
    status, said = site.run()
    assert (status, site.sent()) == (0, [])
    assert "guests run on GPUs of other jobs, and get their own requests once they wait: 8 9_3" in said


def _by_field(line: str) -> list[str]:
    return sorted(line.split(" "))

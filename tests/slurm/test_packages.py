"""Packages of Debian in containers without a network: built, installed, removed, purged; upgraded and taken back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from benchmarks.package_lab import APT, TOP, Archives, Box, PackageLab, clean, make_lab, role_of
from slurm_soda.daemon.store.engine import SCHEMA_VERSION

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # packages are built first: minutes

AGENT_ROLES = ("common", "agent", "spank")
MOST_NODE_BYTES = 40_000_000
OURS = (
    "mkdir -p /opt; "
    "find /etc /opt /run /usr /var -xdev -path '*soda*' ! -path '/var/lib/dpkg/*' ! -path '/var/lib/mysql/*'"
)
"""Every path with our name in it. dpkg removes an /opt that is empty, as after any package with files there."""

PROLOG = "env SLURM_JOB_ID=7 SLURM_JOB_UID=0 SLURM_JOB_USER=root /opt/slurm-soda/libexec/prolog"
"""Without an agent: its record is written by the packaged Python."""


@pytest.fixture(scope="module")
def lab(slurm: str) -> Iterator[PackageLab]:
    lab = make_lab(slurm)
    try:
        yield lab
    finally:
        clean(lab)


@pytest.fixture(scope="module")
def node_archives(lab: PackageLab) -> Archives:
    return lab.build("ONLY='common agent spank'")


@pytest.fixture(scope="module")
def archives(lab: PackageLab) -> Archives:
    return lab.build()


def ours(box: Box) -> set[str]:
    return set(box.said(OURS).splitlines())


def test_a_node_is_installed_removed_and_purged(lab: PackageLab, node_archives: Archives) -> None:
    assert {role_of(name) for name in node_archives if name.endswith(".deb")} == set(AGENT_ROLES)
    with lab.box("slurm") as box:
        assert ours(box) == set()
        before = box.said("find /etc | sort")
        box.install(node_archives)
        size = int(box.said("du -sb --apparent-size /opt/slurm-soda | cut -f1"))
        assert size <= MOST_NODE_BYTES
        assert "usage: soda-agent" in box.said("soda-agent --help")
        assert box.said("/opt/slurm-soda/bin/python -c 'import psutil, pynvml, pyroute2; print(1)'") == "1\n"
        assert "soda_spank.so" in box.said("ls /opt/slurm-soda/lib")
        # Nothing is Slurm's yet, and nothing is for others to write to.
        assert box.run("ls /etc/slurm/plugstack.conf.d").stdout == ""
        assert box.said("find /opt/slurm-soda /etc/slurm-soda ! -type l \\( -perm /022 -o ! -user root \\)") == ""
        assert box.said("stat -c %a /var/spool/slurm-soda /opt/slurm-soda/libexec/prolog").split() == ["700", "755"]
        box.said(PROLOG)
        box.said("echo '#the admins' >>/etc/slurm-soda/agent.toml")
        box.said(f"{APT} remove 'slurm-soda-*'")
        left = ours(box)
        assert {"/etc/slurm-soda/agent.toml", "/etc/slurm-soda/sharing.conf", "/var/spool/slurm-soda"} <= left
        assert not [path for path in left if path.startswith(("/opt/", "/usr/"))]
        box.said(f"{APT} purge 'slurm-soda-*'")
        assert {path for path in ours(box) if not path.startswith("/run/slurm-soda-node")} == set()
        assert box.said("find /etc | sort") == before


USED = """
mkdir -p /etc/slurm/plugstack.conf.d
ln -s /opt/slurm-soda/share/slurm-soda/plugstack.conf.d/slurm-soda.conf /etc/slurm/plugstack.conf.d/soda.conf
echo 'include /etc/slurm/plugstack.conf.d/*' >/etc/slurm/plugstack.conf
printf 'ClusterName=c\\nSlurmctldHost=localhost\\nProlog=/opt/slurm-soda/libexec/prolog\\n' >/etc/slurm/slurm.conf
"""


def test_what_slurm_still_names_is_not_removed(lab: PackageLab, node_archives: Archives) -> None:
    with lab.box("slurm") as box:
        box.install(node_archives)
        box.said(USED)
        assert "--soda-checkpoint" in box.said("sbatch --help")
        refused = box.run(f"{APT} remove 'slurm-soda-*' 2>&1")
        assert refused.status != 0
        assert "Slurm still uses /opt/slurm-soda (/etc/slurm/slurm.conf:3:Prolog=" in refused.stdout
        assert box.said("test -x /opt/slurm-soda/libexec/prolog && echo there") == "there\n"
        box.said(f"sed -i /^Prolog/d /etc/slurm/slurm.conf; {APT} remove 'slurm-soda-*'")
        # The plugin's link went with it, and Slurm's commands are as before.
        assert box.said("ls /etc/slurm/plugstack.conf.d") == ""
        assert "--soda-checkpoint" not in box.said("sbatch --help")


def test_a_dpkg_that_is_killed_costs_no_job_and_is_mended(lab: PackageLab, node_archives: Archives) -> None:
    with lab.box("slurm") as box:
        box.install(node_archives)
        box.said("mkdir /var/tmp/again")
        debs = {name: (content, 0o644) for name, content in node_archives.items() if name.endswith(".deb")}
        box.put(debs, "/var/tmp/again")
        broken = 0
        for after_s in (0.1, 0.2, 0.3, 0.5, 0.8, 1.2):
            box.run(f"timeout --signal=KILL {after_s} dpkg --install /var/tmp/again/*.deb")
            broken += bool(box.said("dpkg --audit"))
            box.said(PROLOG)
        assert broken > 0
        box.said("dpkg --install /var/tmp/again/*.deb")
        assert box.said("dpkg --audit; dpkg --verify | grep soda || true") == ""
        assert "usage: soda-agent" in box.said("soda-agent --help")
        assert box.said("find /opt/slurm-soda -name '*.dpkg-*'") == ""


def test_all_roles(lab: PackageLab, archives: Archives) -> None:
    expected = {"common", "agent", "login", "simulator", "controller", "spank"}
    assert {role_of(name) for name in archives if name.endswith(".deb")} == expected
    assert len([name for name in archives if name.endswith((".whl", ".tar.gz"))]) == 2
    with lab.box("slurm") as box:
        before = box.said("find /etc /usr /opt | sort")
        box.install(archives, "common", "login")
        assert "sodactl, version 0.1.0" in box.said("sodactl --version")
        assert "tiresias" in box.said("sodactl compare --jobs 20 --policy fifo --policy tiresias-las")
        picture = "cd /tmp && sodactl simulate --jobs 20 --out pictures && ls pictures"
        assert "apt-get install slurm-soda-simulator" in box.run(picture).stderr
        box.install(archives, "common", "login", "simulator")
        assert "jct.png" in box.said(picture)
        box.install(archives)
        for command in ("sodactl --help", "sodad --help", "soda-agent --help"):
            assert "usage" in box.said(command).lower()
        assert "policy" in box.said(
            "_SODACTL_COMPLETE=bash_complete COMP_WORDS='sodactl po' COMP_CWORD=1 sodactl; true"
        )
        assert box.said("bash -c '. /usr/share/bash-completion/completions/sodactl && complete -p sodactl'")
        for page in ("man1/sodactl.1", "man1/sodactl-pools-plan.1", "man8/sodad.8", "man8/soda-agent.8"):
            assert ".SH SYNOPSIS" in box.said(f"zcat /usr/share/man/{page}.gz")
        assert box.said("stat -c '%U %a' /var/lib/slurm-soda") == "slurm 755\n"
        assert box.said("getent passwd slurm | cut -d: -f3") != ""
        assert box.said("dpkg --verify | grep soda || true") == ""
        box.said(f"{APT} purge 'slurm-soda-*'")
        assert box.said("mkdir -p /opt; find /etc /usr /opt | sort") == before
        assert box.run("ls -d /var/lib/slurm-soda*").stdout == ""


def test_the_same_sources_make_the_same_bytes(lab: PackageLab, archives: Archives) -> None:
    again = lab.build()
    assert archives.keys() == again.keys()
    assert [name for name in archives if archives[name] != again[name]] == []


def test_packages_take_the_place_of_make_install(lab: PackageLab, archives: Archives) -> None:
    with lab.box("product") as box:
        box.install(archives)
        assert box.said("readlink /opt/slurm-soda/lib/slurm-soda/current") == "packaged\n"
        assert box.said("ls /opt/slurm-soda/lib/slurm-soda").split() == ["current", "packaged"]
        assert box.run("ls /etc/systemd/system/soda-agent.service").status != 0
        refused = box.run(
            "make -C /usr/local/src/slurm-soda install TOOLS=/opt/slurm-soda-tools PIP_FLAGS=--no-index 2>&1"
        )
        assert refused.status != 0
        assert "packages of Debian are installed" in refused.stdout


FUTURE = '''"""A table of a version to come."""
import sqlalchemy as sa
from alembic import op

revision = "9000"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("of_the_future", sa.Column("id", sa.Integer(), primary_key=True))


def downgrade() -> None:
    op.drop_table("of_the_future")
'''
ASK = """/opt/slurm-soda/bin/python - <<'END'
import sqlite3
store = sqlite3.connect("file:/var/lib/slurm-soda/soda.db?mode=ro", uri=True)
tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type='table'")]
print(store.execute("SELECT version_num FROM alembic_version").fetchone()[0], "of_the_future" in tables)
print(store.execute("SELECT key, value FROM admin_setting WHERE key NOT IN ('stage', 'cluster') ORDER BY key").fetchall())
left_out = {"alembic_version", "admin_setting", "of_the_future"}
rows = {name: store.execute(f"SELECT * FROM {name}").fetchall() for name in sorted({*tables} - left_out)}
print({name: found for name, found in rows.items() if found})
END"""
SODACTL = "runuser -u slurm -- "


def newer(lab: PackageLab) -> Archives:
    """Of a version with another revision of the store."""
    engine = (TOP / "daemon/store/engine.py").read_text()
    changes = {
        "daemon/store/engine.py": engine.replace(
            f'SCHEMA_VERSION = "{SCHEMA_VERSION}"', 'SCHEMA_VERSION = "9000"'
        ).encode(),
        "daemon/store/migrations/versions/r9000_future.py": FUTURE.format(before=SCHEMA_VERSION).encode(),
    }
    return lab.build("ONLY='common login controller' REVISION=2", changes)


def test_the_store_goes_to_a_newer_version_and_back(lab: PackageLab, archives: Archives) -> None:
    roles = ("common", "login", "controller")
    with lab.box("slurm") as box:
        box.install(archives, *roles)
        box.said(f"{SODACTL} /opt/slurm-soda/bin/sodad --new-store && {SODACTL} sodactl policy fifo")
        box.said(f"{SODACTL} sodactl profiles set resnet50 iteration_s 0.5 --gpu-type=a100 --batch=64 --gpus=2")
        box.said("sed -i 's/^#log_level.*/log_level = \"debug\"/' /etc/slurm-soda/soda.toml")
        before = box.said(ASK)
        assert before.startswith(f"{SCHEMA_VERSION} False\n")
        assert "resnet50" in before.splitlines()[2]
        later = newer(lab)
        said = box.install(later, *roles)
        assert "the store is backed up to /var/lib/slurm-soda/soda.db.2" in said
        assert box.said(ASK) == before
        box.said(f"{SODACTL} /opt/slurm-soda/bin/sodad --new-store")  # a start brings it forward
        assert box.said(ASK).startswith("9000 True\n")
        box.said(f"{SODACTL} sodactl policy soda")
        said = box.install(archives, *roles)
        assert f"taken back from revision 9000 to {SCHEMA_VERSION}" in said
        after = box.said(ASK)
        assert after.startswith(f"{SCHEMA_VERSION} False\n")
        assert re.sub("fifo", "soda", before.splitlines()[1]) == after.splitlines()[1]
        assert before.splitlines()[2] == after.splitlines()[2]
        assert box.said("grep -c '^log_level' /etc/slurm-soda/soda.toml") == "1\n"
        assert len(box.said("ls /var/lib/slurm-soda/*.backup").split()) == 2
        refused = box.run(f"{APT} remove 'slurm-soda-*' 2>&1")
        assert "slurmctld does not answer, and changes of jobs may be in force" in refused.stdout
        box.said(f"SLURM_SODA_FORCE=1 {APT} remove 'slurm-soda-*'")
        assert "soda.db" in box.said("ls /var/lib/slurm-soda").split()
        box.said(f"{APT} purge 'slurm-soda-*'")
        assert box.run("ls -d /var/lib/slurm-soda").status != 0


def test_sodad_runs_as_slurm_user_of_another_name(lab: PackageLab, archives: Archives) -> None:
    with lab.box("slurm") as box:
        box.said("useradd --system --user-group hpc && echo SlurmUser=hpc >/etc/slurm/slurm.conf")
        box.install(archives, "common", "login", "controller")
        for unit in ("sodad", "sodad-expiry"):
            text = box.said(f"cat /etc/systemd/system/{unit}.service.d/50-slurm-user.conf")
            assert "User=hpc\nGroup=hpc\n" in text
        assert box.said("stat -c %U /var/lib/slurm-soda") == "hpc\n"
        assert "d /run/slurm-soda 0755 hpc hpc -" in box.said("cat /etc/tmpfiles.d/slurm-soda-controller.conf")
        box.said(f"{APT} purge 'slurm-soda-*'")
        assert box.run("ls -d /etc/systemd/system/sodad*").stdout == ""

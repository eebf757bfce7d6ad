"""Maintainer scripts of the packages on a machine in a folder: states in which dpkg, an administrator or a fault left it.

Their absolute paths lead into the folder; systemd, dpkg's database and the directory of users say what a test lets them say.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from install.deb.build import maintainer_scripts
from install.deb.contents import PACKAGES, spank_package

TOP = Path(__file__).parents[2]
WORDS = {"@STORE_REVISION@": "0004", "@VERSION@": "2", "@SLURM@": "24.11"}
SYSTEMCTL = """\
echo "$*" >>{root}/asked
case $1 in
show) for unit; do :; done; cat {root}/units/$unit 2>/dev/null || echo inactive ;;
stop) echo inactive >{root}/units/$2 ;;
start | restart) echo active >{root}/units/$2 ;;
is-enabled) [ -e {root}/units/$3.enabled ] ;;
esac"""
RUNUSER = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
SODAD = """\
case $1 in
--help) echo "usage: sodad [--prepare-for REVISION]" ;;
*) echo "sodad $*" >>{root}/asked; exit $(cat {root}/sodad-status 2>/dev/null || echo 0) ;;
esac"""


@dataclass(frozen=True)
class Machine:
    """Everything below ``root``."""

    root: Path

    def path(self, absolute: str) -> Path:
        return self.root / absolute.removeprefix("/")

    def write(self, absolute: str, text: str = "", mode: int = 0o644) -> Path:
        path = self.path(absolute)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def command(self, name: str, lines: str) -> None:
        self.write(f"/bin/{name}", f"#!/bin/sh\n{lines.replace('{root}', str(self.root))}\n", 0o755)

    def systemd(self, **states: str) -> None:
        """systemd runs here, with units in these states."""
        self.path("/run/systemd/system").mkdir(parents=True)
        self.command("systemctl", SYSTEMCTL)
        for unit, state in states.items():
            self.write(f"/units/{unit.replace('_', '-')}.service", f"{state}\n")

    def state(self, unit: str) -> str:
        return self.path(f"/units/{unit}").read_text().strip()

    def sodad(self) -> None:
        """sodad is installed and has had a store."""
        self.write("/opt/slurm-soda/bin/sodad", f"#!/bin/sh\n{SODAD.format(root=self.root)}\n", 0o755)
        self.write("/var/lib/slurm-soda/sodad.lock")

    def asked(self, word: str) -> list[str]:
        """What was asked of systemctl or sodad that begins so."""
        asked = self.path("/asked")
        lines = asked.read_text().splitlines() if asked.exists() else []
        return [line for line in lines if line.startswith(word)]

    def run(self, role: str, name: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        package = next(one for one in (*PACKAGES, spank_package("24.11")) if one.role.partition("-")[0] == role)
        text = maintainer_scripts(package, role, WORDS)[name]
        text = re.sub(r"^PATH=.*", f"PATH={self.root}/bin:/usr/sbin:/usr/bin:/sbin:/bin", text, count=1, flags=re.M)
        paths = r"(?<![\w.}*/])/(?=opt/slurm-soda|run/s|etc\b|var/|usr/lib/tmpfiles|usr/sbin/policy|usr/local/bin/\$)"
        script = self.write(f"/scripts/{role}.{name}", re.sub(paths, f"{self.root}/", text), 0o755)
        argv: list[str | Path] = ["/bin/sh", script, *words]
        return subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.path("/etc/slurm").mkdir(parents=True)
    made.command("runuser", RUNUSER)
    made.command("dpkg-query", "for package; do :; done; cat {root}/packages/$package 2>/dev/null")
    for command in ("systemd-tmpfiles", "systemd-sysusers", "install"):
        made.command(command, 'echo "${0##*/} $*" >>{root}/asked')
    made.command("systemctl", "exit 1")
    return made


def test_an_upgrade_stops_what_runs_and_starts_it_again(machine: Machine) -> None:
    machine.systemd(sodad="active", soda_agent="inactive")
    machine.sodad()
    assert machine.run("common", "preinst", "upgrade", "1").returncode == 0
    assert machine.state("sodad.service") == "inactive"
    assert machine.asked("sodad") == ["sodad --prepare-for 0004"]
    # dpkg was killed, and does it again; another package of the same version comes next.
    assert machine.run("common", "preinst", "upgrade", "1").returncode == 0
    assert machine.run("login", "preinst", "upgrade", "1").returncode == 0
    assert len(machine.asked("sodad")) == 1
    # Somebody started sodad in between.
    mark = machine.path("/run/slurm-soda-upgrade/store").stat()
    os.utime(machine.path("/var/lib/slurm-soda/sodad.lock"), ns=(mark.st_mtime_ns + 1, mark.st_mtime_ns + 1))
    assert machine.run("login", "preinst", "upgrade", "1").returncode == 0
    assert len(machine.asked("sodad")) == 2
    assert machine.run("controller", "postinst", "configure", "1").returncode == 0
    assert machine.state("sodad.service") == "active"
    assert machine.state("soda-agent.service") == "inactive"
    assert not machine.path("/run/slurm-soda-upgrade").exists()


def test_a_daemon_that_is_tried_again_and_again_is_stopped_too(machine: Machine) -> None:
    machine.systemd(soda_agent="activating")
    machine.run("agent", "prerm", "upgrade", "2")
    assert machine.state("soda-agent.service") == "inactive"
    machine.run("agent", "postinst", "configure", "1")
    assert machine.state("soda-agent.service") == "active"


def test_no_release_of_lifts_is_under_way_while_files_change(machine: Machine) -> None:
    machine.systemd()
    machine.write("/units/sodad-expiry.timer", "active\n")
    machine.run("controller", "prerm", "upgrade", "2")
    assert machine.asked("stop") == ["stop sodad-expiry.timer", "stop sodad-expiry.service"]


def test_the_store_of_another_state_folder_is_made_ready(machine: Machine) -> None:
    machine.sodad()
    machine.path("/var/lib/slurm-soda/sodad.lock").unlink()
    elsewhere = machine.write("/elsewhere/sodad.lock").parent
    machine.write("/etc/slurm-soda/soda.toml", f"# state_dir = '/nowhere'\nstate_dir = '{elsewhere}'\n[store]\n")
    machine.run("common", "preinst", "upgrade", "1")
    assert machine.asked("sodad") == ["sodad --prepare-for 0004"]


def test_a_store_that_cannot_be_made_ready_stops_an_upgrade(machine: Machine) -> None:
    machine.systemd(sodad="active")
    machine.sodad()
    machine.write("/sodad-status", "1")
    refused = machine.run("common", "preinst", "upgrade", "1")
    assert refused.returncode == 1
    assert "the store was not made ready for 2, and nothing was changed" in refused.stderr
    assert "SLURM_SODA_FORCE=1" in refused.stderr
    machine.run("common", "postinst", "abort-upgrade", "2")
    assert machine.state("sodad.service") == "active"
    assert machine.run("common", "preinst", "upgrade", "1", SLURM_SODA_FORCE="1").returncode == 0


def test_packages_over_make_install_prepare_its_store(machine: Machine) -> None:
    machine.systemd(sodad="active", soda_agent="active")
    machine.sodad()
    machine.run("common", "preinst", "install")
    assert machine.asked("sodad") == ["sodad --prepare-for 0004"]
    assert machine.state("soda-agent.service") == "active"
    machine.run("common", "postrm", "abort-install")
    assert machine.state("sodad.service") == "active"


def test_a_sodad_that_cannot_prepare_goes_on(machine: Machine) -> None:
    machine.systemd(sodad="active")
    machine.sodad()
    machine.write("/opt/slurm-soda/bin/sodad", "#!/bin/sh\necho usage: sodad\n", 0o755)
    assert machine.run("common", "preinst", "install").returncode == 0
    assert machine.state("sodad.service") == "active"


@pytest.mark.parametrize(
    ("agent", "stays", "said"),
    [("installed", False, ""), ("unpacked", True, ""), ("config-files", True, "apt-get install slurm-soda-agent")],
)
def test_the_environment_of_make_install_stays_while_it_is_needed(
    machine: Machine, agent: str, stays: bool, said: str
) -> None:
    environment = machine.write("/opt/slurm-soda/lib/slurm-soda/environment.abcdef/roles", "agent\nlogin\n").parent
    machine.write("/packages/slurm-soda-login", "half-configured")
    machine.write("/packages/slurm-soda-agent", agent)
    done = machine.run("login", "postinst", "configure")
    assert environment.exists() == stays
    assert done.returncode == 0
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


def test_a_unit_of_make_install_makes_way_in_an_image_too(machine: Machine) -> None:
    machine.command("systemctl", SYSTEMCTL)  # which works on files where systemd does not run
    unit = machine.write("/etc/systemd/system/soda-agent.service", f"ExecStart={machine.root}/opt/slurm-soda/bin/x\n")
    machine.write("/units/soda-agent.service.enabled")
    machine.run("agent", "postinst", "configure")
    assert not unit.exists()
    assert machine.asked("--quiet reenable") == ["--quiet reenable soda-agent.service"]


def test_a_removal_from_an_image_disables_units(machine: Machine) -> None:
    machine.command("systemctl", SYSTEMCTL)
    assert machine.run("agent", "prerm", "remove").returncode == 0
    assert machine.asked("--quiet disable") == ["--quiet disable soda-agent.service"]
    assert not machine.asked("stop")


def test_limits_of_a_killed_agent_hold_a_removal_back(machine: Machine) -> None:
    script = machine.write(
        "/opt/slurm-soda/lib/slurm-soda/packaged/limits_left.sh", "#!/bin/sh\necho cores of jobs\n", 0o755
    )
    refused = machine.run("agent", "prerm", "remove")
    assert refused.returncode == 1
    assert "killed: cores of jobs; start soda-agent and stop it" in refused.stderr
    assert machine.run("agent", "prerm", "remove", SLURM_SODA_FORCE="1").returncode == 0
    script.write_text("#!/bin/sh\nexit 1\n")
    assert machine.run("agent", "prerm", "remove").returncode == 0


def test_a_sodad_that_systemd_does_not_know_holds_a_removal_back(machine: Machine) -> None:
    machine.sodad()
    machine.command("scontrol", "exit 0")
    machine.write("/opt/slurm-soda/lib/slurm-soda/packaged/in_force.sh", "#!/bin/sh\n", 0o755)
    with machine.path("/var/lib/slurm-soda/sodad.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = machine.run("controller", "prerm", "remove")
    assert (refused.returncode, "a sodad runs" in refused.stderr) == (1, True)
    assert machine.run("controller", "prerm", "remove").returncode == 0


def plugin_link(machine: Machine, folder: Path) -> Path:
    drop_in = machine.write("/opt/slurm-soda/share/slurm-soda/plugstack.conf.d/slurm-soda.conf", "optional\n")
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "soda.conf"
    link.symlink_to(drop_in)
    return link


def test_the_plugins_link_goes_with_it(machine: Machine) -> None:
    link = plugin_link(machine, machine.path("/etc/slurm/plugstack.conf.d"))
    other = link.with_name("other.conf")
    other.symlink_to("/nowhere")
    assert machine.run("spank", "prerm", "remove", "in-favour", "slurm-soda-spank-slurm25.05", "1").returncode == 0
    assert link.is_symlink()
    done = machine.run("spank", "prerm", "remove")
    assert "no --soda flags from now on" in done.stderr
    assert (link.is_symlink(), other.is_symlink()) == (False, True)


def test_the_plugins_link_of_the_whole_cluster_stays(machine: Machine, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    folder = shared / f"soda-test-{os.getpid()}"
    link = plugin_link(machine, folder)
    try:
        machine.path("/etc/slurm/plugstack.conf.d").symlink_to(folder)
        assert machine.run("spank", "prerm", "remove").returncode == 0
        assert link.is_symlink()
    finally:
        link.unlink()
        folder.rmdir()


def test_a_refused_removal_leaves_the_plugins_link(machine: Machine) -> None:
    link = plugin_link(machine, machine.path("/etc/slurm/plugstack.conf.d"))
    script = "#!/bin/sh\necho plugstack.conf:1:optional\n"
    machine.write("/opt/slurm-soda/lib/slurm-soda/packaged/named_by_slurm.sh", script, 0o755)
    refused = machine.run("spank", "prerm", "remove")
    assert refused.returncode == 1
    assert "Slurm still uses" in refused.stderr
    assert link.is_symlink()


@pytest.mark.parametrize(("user", "group"), [("hpc", "hpc"), ("slurm", "cluster"), ("slurm", "slurm")])
def test_sodad_runs_as_slurm_user_and_his_group(machine: Machine, user: str, group: str) -> None:
    machine.command("getent", f"echo {user}")
    machine.command("id", f"echo {group}")
    machine.command("scontrol", f"echo 'SlurmUser               = {user}(64030)'")
    machine.write("/usr/lib/tmpfiles.d/slurm-soda-controller.conf", "d /run/slurm-soda 0755 slurm slurm -\n")
    assert machine.run("controller", "postinst", "configure").returncode == 0
    drop_in = machine.path("/etc/systemd/system/sodad.service.d/50-slurm-user.conf")
    if group == "slurm":
        assert not drop_in.exists()
        return
    assert f"User={user}\nGroup={group}\n" in drop_in.read_text()
    boot = machine.path("/etc/tmpfiles.d/slurm-soda-controller.conf").read_text()
    assert boot == f"d /run/slurm-soda 0755 {user} {group} -\n"
    drop_in.write_text("")  # a full disk, or a kill, has left it so
    machine.run("controller", "postinst", "configure")
    assert f"User={user}\n" in drop_in.read_text()
    machine.command("scontrol", "echo 'SlurmUser               = another(64031)'")
    assert (
        f"SlurmUser is another, and sodad runs as {user}" in machine.run("controller", "postinst", "configure").stderr
    )


@pytest.mark.parametrize("group", ["domain users", "SITE/hpc", "a&b"])
def test_a_group_with_an_odd_name_goes_by_its_number(machine: Machine, group: str) -> None:
    machine.command("getent", "echo hpc")
    machine.command("id", f"case $1 in -gn) echo '{group}' ;; -g) echo 1234 ;; esac")
    machine.command("scontrol", "echo 'SlurmUser               = hpc(64030)'")
    machine.write("/usr/lib/tmpfiles.d/slurm-soda-controller.conf", "d /run/slurm-soda 0755 slurm slurm -\n")
    assert machine.run("controller", "postinst", "configure").returncode == 0
    drop_in = machine.path("/etc/systemd/system/sodad.service.d/50-slurm-user.conf")
    assert "User=hpc\nGroup=1234\n" in drop_in.read_text()
    assert machine.path("/etc/tmpfiles.d/slurm-soda-controller.conf").read_text().split()[3:5] == ["hpc", "1234"]


def test_who_comes_from_a_directory_is_not_made_at_a_boot(machine: Machine) -> None:
    machine.command("getent", '[ "$1" != -s ]')
    machine.command("id", "echo slurm")
    assert machine.run("controller", "postinst", "configure").returncode == 0
    assert machine.path("/etc/sysusers.d/slurm-soda-controller.conf").readlink() == Path("/dev/null")
    assert not machine.asked("systemd-sysusers")


def test_the_state_folder_on_a_disk_that_is_not_there(machine: Machine) -> None:
    link = machine.path("/var/lib/slurm-soda")
    link.parent.mkdir(parents=True)
    link.symlink_to("/nowhere/slurm-soda")
    assert machine.run("controller", "postinst", "configure").returncode == 0
    assert not machine.asked("install")

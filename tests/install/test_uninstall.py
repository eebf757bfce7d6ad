"""``make uninstall`` removes nothing that Slurm still names: slurmd would drain the node."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@dataclass(frozen=True)
class Machine:
    """An installation, Slurm's configuration beside it, and a slurmctld and a systemd that say what a test lets them say."""

    top: Path
    prefix: Path
    conf: Path

    def command(self, name: str, lines: str) -> None:
        program = self.top / "bin" / name
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)

    def slurm_shows(self, *lines: str) -> None:
        shown = "\n".join((*lines, f"SLURM_CONF              = {self.conf}/slurm.conf"))
        self.command("scontrol", f"cat <<'END'\nConfiguration data as of now\n{shown}\nEND")

    def uninstall(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["make", "-s", "-C", TOP, "uninstall", f"PREFIX={self.prefix}", f"UNITS={self.top}/units", *words]
        environ = {**os.environ, "PATH": f"{self.top}/bin:{os.environ['PATH']}"}
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)

    def left(self) -> list[str]:
        return [path.name for path in (self.prefix, self.top / "units" / "soda-agent.service") if path.exists()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, tmp_path / "slurm-soda", tmp_path / "etc")
    for folder in (made.prefix / "lib", made.prefix / "libexec", made.conf, tmp_path / "bin", tmp_path / "units"):
        folder.mkdir(parents=True)
    for file in (
        made.prefix / "lib/soda_spank.so",
        tmp_path / "units/soda-agent.service",
    ):
        file.touch()
    (made.prefix / "libexec/prolog").write_text("#!/bin/sh\n# slurm-soda's prolog\n")
    made.slurm_shows("Prolog                  = (null)", "Epilog[0]               = /site/epilog")
    made.command("systemctl", "echo inactive")
    (made.conf / "slurm.conf").write_text(f"# Prolog={made.prefix}/libexec/prolog\nClusterName=c\n")
    return made


def test_what_nobody_names_is_removed(machine: Machine) -> None:
    (machine.conf / "job_submit.lua").write_text(f"   -- dofile('{machine.prefix}/lib/soda.lua')\n")
    done = machine.uninstall("ROLE=agent")
    assert (done.returncode, done.stderr, machine.left()) == (0, "", [])
    assert str(machine.prefix) in done.stdout


def test_whatever_install_put_beside_the_hooks_goes(machine: Machine) -> None:
    libexec = machine.prefix / "libexec"
    argv = ["make", "-s", "-C", TOP, "--eval=hooks: ; @echo $(HOOKS)", "hooks", "ROLE=all"]
    hooks = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert "prolog/mps-start" in hooks
    for hook in hooks:
        (libexec / Path(hook).name).write_bytes((TOP / hook).read_bytes())
    done = machine.uninstall("ROLE=agent")
    assert (done.returncode, done.stderr, machine.left()) == (0, "", [])


def test_what_is_for_prometheus_goes(machine: Machine) -> None:
    share = machine.prefix / "share" / "slurm-soda"
    share.mkdir(parents=True)
    for file in (TOP / "install" / "monitoring").iterdir():
        (share / file.name).touch()
    done = machine.uninstall()
    assert (done.returncode, done.stderr, machine.left()) == (0, "", [])


def refused(machine: Machine, *words: str) -> str:
    done = machine.uninstall(*words)
    assert done.returncode != 0
    assert machine.left() == ["slurm-soda", "soda-agent.service"]
    said, make = done.stderr.strip().splitlines()
    assert make.startswith("make")
    return said


@pytest.mark.parametrize("key", ["Prolog[0]", "Epilog[1]", "EpilogSlurmctld[0]", "EpilogSlurmctld"])
def test_slurm_still_runs_our_hooks(machine: Machine, key: str) -> None:
    machine.slurm_shows(f"{key:23} = {machine.prefix}/libexec/prolog")
    said = refused(machine)
    assert f"{key} = {machine.prefix}/libexec/prolog" in said
    assert "scontrol reconfigure" in said


@pytest.mark.parametrize("name", ["slurm.conf", "plugstack.conf", "plugstack.conf.d/soda", "job_submit.lua"])
def test_a_file_of_slurms_names_ours(machine: Machine, name: str) -> None:
    file = machine.conf / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# nothing\noptional {machine.prefix}/lib/soda_spank.so\n")
    assert f"{file}:2:optional {machine.prefix}/lib/soda_spank.so" in refused(machine)


def test_limits_of_a_killed_agent(machine: Machine) -> None:
    state = machine.top / "state"
    state.mkdir()
    (state / "network.json").write_text("{}")
    done = machine.uninstall(f"AGENT_STATE={state}")
    assert done.returncode != 0
    assert "nothing was removed: still limited by an agent that was killed: the network of jobs;" in done.stderr
    (state / "network.json").unlink()
    assert machine.uninstall(f"AGENT_STATE={state}").returncode == 0


def test_the_sites_own_prolog_calls_ours(machine: Machine) -> None:
    scripts = machine.top / "prolog.d"
    scripts.mkdir()
    (scripts / "20-soda").write_text(f"#!/bin/sh\n{machine.prefix}/libexec/prolog\n")
    machine.slurm_shows(f"Prolog[0]               = {scripts}/*")
    assert f"{scripts}/20-soda:2:" in refused(machine)


@pytest.mark.parametrize("named", ["{}/*", "{}/50-soda", "/nowhere,{}/[0-9]*"])
@pytest.mark.parametrize("target", ["libexec/prolog", "libexec/gone"])
def test_a_link_to_ours_is_found(machine: Machine, named: str, target: str) -> None:
    """Also one that leads nowhere any more: slurmd would drain the node for it."""
    folder = machine.top / "prolog.d"
    folder.mkdir()
    (folder / "10-site").write_text("exit 0\n")
    (folder / "40-soda").symlink_to(machine.prefix / target)
    (folder / "50-soda").symlink_to("40-soda")
    machine.slurm_shows(f"Prolog                  = {named.format(folder)}")
    said = refused(machine)
    assert f"{folder}/" in said
    assert f"links to {machine.prefix}/{target}" in said


@pytest.mark.parametrize("name", ["plugstack.conf.d/soda", "job_submit.lua"])
def test_a_file_of_slurms_links_to_ours(machine: Machine, name: str) -> None:
    link = machine.conf / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(machine.prefix / "lib/soda.lua")
    assert f"{link} links to {machine.prefix}/lib/soda.lua" in refused(machine)


def test_slurm_does_not_answer(machine: Machine) -> None:
    machine.command("scontrol", "exit 1")
    said = refused(machine)
    assert "scontrol show config fails" in said
    assert "FORCE=1" in said
    assert machine.uninstall("FORCE=1").returncode == 0
    assert machine.left() == []


@pytest.mark.parametrize("state", ["active", "activating", "deactivating", "reloading"])
def test_a_daemon_of_ours_runs(machine: Machine, state: str) -> None:
    """Or cannot start, and systemd tries again: it is `activating` then."""
    machine.command("systemctl", f'[ "$4" = sodad.service ] && echo {state} || echo inactive')
    assert f"sodad.service is {state}; systemctl disable --now sodad.service" in refused(machine, "FORCE=1")


def test_a_daemon_that_failed_does_not_run(machine: Machine) -> None:
    machine.command("systemctl", "echo failed")
    assert (machine.uninstall().returncode, machine.left()) == (0, [])


REST = '"unfinished": [], "running_guests": []'
NOTHING = f'{{"changes": [], {REST}}}'
HELD = f'{{"changes": [{{"job_id": 7, "kind": "release", "old": {{}}}}], {REST}}}'
LIFTED = f'{{"changes": [{{"job_id": 7, "kind": "release", "old": {{"SiteFactor": "4"}}}}], {REST}}}'
OWED = '{"changes": [{"job_id": 8, "kind": "requeue", "old": {}}], "unfinished": [9], "running_guests": []}'
GUESTS = '{"changes": [], "unfinished": [], "running_guests": ["4", "14_2"]}'


@pytest.mark.parametrize(
    ("answer", "pools", "said"),
    [
        (NOTHING, 3, ""),
        (HELD, 3, ""),
        (LIFTED, 3, "changes of jobs are in force (of 7): sodactl release-all"),
        (OWED, 3, "changes of jobs are in force (of 8, 9): sodactl release-all"),
        (GUESTS, 3, "guests run on GPUs of other jobs (4, 14_2), which our prolog and epilog guard: wait until they"),
        (NOTHING, 0, "pools are in force: sodactl pools revert --wait"),
        (NOTHING, 1, "pools are in force"),
        ("Traceback", 3, "does not tell whether changes of jobs are in force; make install mends it"),
    ],
)
def test_what_sodad_did_is_in_force(machine: Machine, answer: str, pools: int, said: str) -> None:
    programs = machine.prefix / "bin"
    programs.mkdir()
    for name, text in (
        ("sodad", ""),
        ("sodactl", f"[ \"$1\" != pools ] || exit {pools}\ncat <<'END'\n{answer}\nEND\nexit 1"),
        ("python", f'exec {sys.executable} "$@" # lib/slurm-soda/current'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    if said:
        refusal = refused(machine)
        assert said in refusal
        assert refusal.endswith("or FORCE=1")
        assert machine.uninstall("FORCE=1").returncode == 0
    else:
        assert machine.uninstall().returncode == 0
    assert not (machine.prefix / "lib").exists()


def test_a_prefix_that_is_not_ours_stays(machine: Machine) -> None:
    (machine.prefix / "lib" / "soda_spank.so").unlink()
    assert "holds no slurm-soda" in refused(machine, "FORCE=1")


def test_a_shared_prefix_keeps_what_is_of_others(machine: Machine) -> None:
    others = [machine.prefix / name for name in ("bin/tool", "lib/libother.so", "libexec/epilog", "share/doc")]
    for file in others:
        file.parent.mkdir(exist_ok=True)
        file.write_text("the site's\n")
    done = machine.uninstall()
    assert (done.returncode, [file for file in others if not file.exists()]) == (0, [])
    assert not (machine.prefix / "lib/soda_spank.so").exists()
    assert not (machine.prefix / "libexec/prolog").exists()
    assert f"left: {machine.prefix}" in done.stdout


def test_what_python_sh_made_goes(machine: Machine) -> None:
    store, programs = machine.prefix / "lib/slurm-soda", machine.prefix / "bin"
    for folder in (store / "environment.a" / "bin", store / "packages.b", programs):
        folder.mkdir(parents=True)
    (store / ".lock").touch()
    (store / "current").symlink_to("environment.a")
    (programs / "soda-agent").symlink_to(store / "current/bin/soda-agent")
    (programs / "python").write_text(f"#!/bin/sh\nexec $(readlink -f {store}/current)/bin/python\n")
    with (store / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "an installation works in" in refused(machine)
    done = machine.uninstall()
    assert (done.returncode, done.stderr, machine.left()) == (0, "", [])


@pytest.mark.parametrize("ours", [True, False])
def test_the_virtual_environment_goes_if_it_is_ours(machine: Machine, ours: bool) -> None:
    """As earlier releases made it: it was the prefix itself."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", machine.prefix], check=True)
    (site,) = machine.prefix.glob("lib/python3*/site-packages")
    (machine.prefix / "bin/alembic").touch()
    (site / ("slurm_soda" if ours else "other")).mkdir()
    (site / "x.dist-info").mkdir()
    (site / "x.dist-info/RECORD").write_text("../../../bin/alembic,sha256=x,1\nx/__init__.py,,\n")
    assert machine.uninstall().returncode == 0
    assert machine.left() == ([] if ours else ["slurm-soda"])
    assert (machine.prefix / "bin/alembic").exists() != ours


@pytest.mark.parametrize("form", ["{}//", "{}/../link/", "{}/../link//"])
def test_slurm_names_the_prefix_in_another_form(machine: Machine, form: str) -> None:
    (machine.top / "link").symlink_to(machine.prefix)
    machine.slurm_shows(f"Prolog[0]               = {machine.prefix}/libexec/prolog")
    assert "Slurm still uses" in refused(machine, f"PREFIX={form.format(machine.prefix)}")


def test_systemd_forgets_the_units_that_were_removed(machine: Machine) -> None:
    machine.command("systemctl", f'echo "$*" >>{machine.top}/asked')
    assert machine.uninstall().returncode == 0
    assert (machine.top / "asked").read_text().splitlines()[-1] == "daemon-reload"

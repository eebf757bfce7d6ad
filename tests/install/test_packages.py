"""Debian packages: which file is in which, what they say of themselves, and that the same sources make the same bytes.

tests/install/test_maintainer_scripts.py runs their scripts, tests/slurm/test_packages.py installs them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType

import pytest

from install.deb.archive import SCRIPTS, Build, Contents, control, make_archive, write_index
from install.deb.build import maintainer_scripts, store_revision, suite
from install.deb.contents import (
    ONLY_SIMULATOR,
    PACKAGES,
    DebianPackage,
    divide,
    needed_by,
    normalised,
    requirement_names,
    spank_package,
)
from install.deb.elf_needs import relations
from install.deb.samples import sample_of_agent, sample_of_soda
from slurm_soda.agent.settings.agent_config import AgentConfig, load_agent_config
from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import SCHEMA_VERSION
from slurm_soda.sodactl.main import COMMANDS

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
WITH_SIMULATOR = ("simulate", "compare", "whatif", "demo", "cluster")
BUILD = Build("0.1.0-1~deb13", "amd64", "python3.13", 1_700_000_000, "0004")
OURS = (
    *("/var/lib/slurm-soda", "/var/spool/slurm-soda", "/run/slurm-soda", "/etc/systemd/system/$unit"),
    *("/etc/sysusers.d/slurm-soda", "/etc/tmpfiles.d/slurm-soda", '"$store', '"$running', '"$file"', '"$link"'),
    *("/run/slurm-soda", '"$folder"'),
)
"""What maintainer scripts remove."""
debian = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no Debian")


def found_here() -> dict[str, Distribution]:
    return {normalised(one.metadata["Name"]): one for one in distributions()}


def installed_for_roles() -> dict[str, str]:
    """Roles of what the locks of all roles name, by what is installed for development."""
    every = found_here()
    roots = [*PROJECT["dependencies"], *EXTRAS["agent"], *EXTRAS["controller"], *EXTRAS["postgresql"]]
    names = needed_by(requirement_names(roots), every)
    return divide(PROJECT["dependencies"], EXTRAS, {name: every[name] for name in names})


def test_each_third_party_package_is_in_one_debian_package() -> None:
    role_of = installed_for_roles()
    expected = {
        "psutil": "agent", "pyroute2": "agent", "nvidia-ml-py": "agent",
        "click": "login", "numpy": "login", "sqlalchemy": "login", "pydantic-core": "login", "matplotlib": "simulator",
        "pillow": "simulator", "alembic": "controller", "starlette": "controller", "psycopg": "postgresql",
        "psycopg-binary": "postgresql",
    }  # fmt: skip
    assert {name: role_of[name] for name in expected} == expected


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_what_the_locks_name_for_linux_is_all_divided(role: str, roles: ModuleType) -> None:
    names = roles.locked((TOP / f"requirements-{role}.lock").read_text("utf-8")).keys()
    assert {name for name in names if name in found_here()} <= installed_for_roles().keys()


def test_only_simulations_draw_charts(roles: ModuleType, sources: dict[str, str]) -> None:
    others = [COMMANDS[name].target.partition(":")[0] for name in COMMANDS.keys() - set(WITH_SIMULATOR)]
    assert not set(ONLY_SIMULATOR) & roles.imports_of(["slurm_soda.daemon.main", *others], sources).others
    assert set(ONLY_SIMULATOR) <= set(requirement_names(PROJECT["dependencies"]))


def test_what_nobody_needs_is_refused() -> None:
    with pytest.raises(SystemExit, match="no package needs mypy"):
        divide([], EXTRAS, {"mypy": found_here()["mypy"]})


def test_samples_say_the_defaults(tmp_path: Path) -> None:
    """As they are, and with every line of theirs in force."""
    soda = sample_of_soda((TOP / "docs/install.md").read_text("utf-8"))
    agent = sample_of_agent((TOP / "docs/node.md").read_text("utf-8"))
    for text in (soda, re.sub(r"^#(?=\S)", "", soda, flags=re.M)):
        (tmp_path / "soda.toml").write_text(text)
        assert load_settings(tmp_path / "soda.toml") == Settings()
    for text in (agent, re.sub(r"^#(?=\S)", "", agent, flags=re.M)):
        (tmp_path / "agent.toml").write_text(text)
        assert load_agent_config(tmp_path / "agent.toml", {}) == AgentConfig()
    assert "# longest time between two cycles without any event\n#interval_s = 10.0\n" in soda
    assert max(map(len, soda.splitlines())) <= 120


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n', "deb13"),
        ("ID=debian\nVERSION_CODENAME=forky\n", "debforky"),
        ('NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n', "ubuntu24.04"),
        ("", "linux"),
    ],
)
def test_the_version_names_the_suite(text: str, name: str) -> None:
    assert suite(text) == name


def test_the_controller_knows_its_revision_of_the_store() -> None:
    assert store_revision((TOP / "daemon/store/engine.py").read_text("utf-8")) == SCHEMA_VERSION
    with pytest.raises(SystemExit):
        store_revision("SCHEMA_VERSION = 4\n")
    controller = next(package for package in PACKAGES if package.role == "controller")
    assert "Slurm-Soda-Store: 0004\n" in control(controller, BUILD, [], 1)


@pytest.mark.parametrize("package", [*PACKAGES, spank_package("24.11")], ids=lambda package: package.role)
def test_control_files_are_whole(package: DebianPackage) -> None:
    text = control(package, BUILD, ["libc6 (>= 2.34)"], 7)
    assert "{" not in text
    assert not re.search(r"^$", text.removesuffix("\n"), re.M)
    assert all(line.startswith(" ") or re.match(r"[A-Z][A-Za-z-]+: \S", line) for line in text.splitlines())


@pytest.mark.parametrize("package", [*PACKAGES, spank_package("24.11")], ids=lambda package: package.role)
def test_maintainer_scripts_are_sound(package: DebianPackage, tmp_path: Path) -> None:
    role = package.role.partition("-")[0]
    scripts = maintainer_scripts(package, role, {"@STORE_REVISION@": "0004", "@VERSION@": "2", "@SLURM@": "24.11"})
    assert set(scripts) <= set(SCRIPTS)
    for name, text in scripts.items():
        assert "@" not in re.sub(r"#.*|\"\$@\"", "", text), name
        assert text.index("PATH=/usr/sbin") < text.index("case $1")
        (tmp_path / name).write_text(text)
        subprocess.run(["sh", "-n", tmp_path / name], check=True)
        # An action of dpkg that is not known here does nothing, and that well.
        subprocess.run(["sh", tmp_path / name, "triggered"], check=True)


def test_only_the_packages_own_folders_are_removed() -> None:
    """And nothing of Slurm's."""
    for script in (TOP / "install/deb/scripts").iterdir():
        for line in script.read_text().splitlines():
            if removes := re.search(r"\brm -(?:r?f) (.*)|^ *remove_folders (.*)", line):
                removed = (removes[1] or removes[2]).partition("||")[0]
                words = [word for word in removed.split() if word.startswith(("/", '"', "$"))]
                assert words, line
                assert all(word.startswith(OURS) for word in words), line


@debian
def test_libraries_are_named_by_package() -> None:
    found = relations([Path("/bin/ls"), Path(__file__)], [])
    assert any(re.fullmatch(r"libc6 \(>= 2\.\d+\)", one) for one in found)
    assert relations([Path(__file__)], []) == []


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    root = tmp_path / "root"
    for path, text in {
        "opt/slurm-soda/libexec/prolog": "#!/bin/sh\n",
        "etc/slurm-soda/agent.toml": "# nothing\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "opt/slurm-soda/libexec/prolog").chmod(0o755)
    (root / "usr").mkdir()
    (root / "usr/agent").symlink_to("/opt/slurm-soda/bin/agent")
    package = replace(next(one for one in PACKAGES if one.role == "agent"), conffiles=("etc/slurm-soda/agent.toml",))
    paths = ["etc/slurm-soda/agent.toml", "opt/slurm-soda/libexec/prolog", "usr/agent"]
    return Contents(package, root, paths, {"postinst": "#!/bin/sh\n"})


@debian
def test_an_archive_holds_what_was_laid_out(contents: Contents, tmp_path: Path) -> None:
    made = []
    for number in ("1", "2"):
        out = tmp_path / number
        out.mkdir()
        (contents.root / contents.paths[0]).touch()  # another date
        made.append(make_archive(contents, BUILD, tmp_path / f"work{number}", out))
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == "slurm-soda-agent_0.1.0-1~deb13_amd64.deb"
    listed = subprocess.run(["dpkg-deb", "-c", made[0]], capture_output=True, text=True, check=True).stdout
    entries = {line.split()[5]: line.split()[:2] for line in listed.splitlines()}
    assert entries["./opt/slurm-soda/libexec/prolog"] == ["-rwxr-xr-x", "root/root"]
    assert entries["./opt/slurm-soda/"] == ["drwxr-xr-x", "root/root"]
    assert "./usr/agent -> /opt/slurm-soda/bin/agent" in listed
    (tmp_path / "about").mkdir()
    subprocess.run(["dpkg-deb", "-e", made[0], tmp_path / "about"], check=True)
    assert (tmp_path / "about/conffiles").read_text() == "/etc/slurm-soda/agent.toml\n"
    write_index(made[:1], tmp_path / "1")
    index = (tmp_path / "1/Packages").read_text()
    assert "Filename: ./slurm-soda-agent_0.1.0-1~deb13_amd64.deb\n" in index
    assert re.search(r"^SHA256: [0-9a-f]{64}$", index, re.M)


def test_make_names_the_files_that_make_install_installs() -> None:
    shown = subprocess.run(["make", "-n", "-C", TOP, "packages"], capture_output=True, text=True, check=True).stdout
    for variable, names in (("NODE_HOOKS", ("prolog/prolog", "epilog/mps-stop", "prolog/share-walls")),
                            ("CONTROLLER_HOOKS", ("epilog/epilogctld", "daemon/soda-release-lifts")),
                            ("SHARED", ("slurm_ext/lua/job_submit.lua", "install/monitoring/prometheus.yml")),
                            ("LUA", ("slurm_ext/lua/soda.lua", "slurm_ext/lua/soda_guests.lua"))):  # fmt: skip
        listed = re.search(rf"{variable}='([^']*)'", shown)
        assert listed is not None
        assert set(names) <= set(listed[1].split())
        assert all((TOP / name).is_file() for name in listed[1].split())


def test_another_role_is_refused() -> None:
    argv = [sys.executable, "-m", "install.deb.build", "/nowhere"]
    done = subprocess.run(argv, cwd=TOP, env={"ONLY": "nodes"}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ONLY names nodes" in done.stderr or "Debian's own Python" in done.stderr


@pytest.mark.parametrize(
    ("conf", "files", "named"),
    [
        ("Prolog={}/libexec/prolog\n", ["libexec/prolog", "libexec/epilog"], "slurm.conf:1:Prolog="),
        ("#Prolog={}/libexec/prolog\n", ["libexec/prolog"], ""),
        # The node's package may go while the controller's stays.
        ("EpilogSlurmctld={}/libexec/epilogctld\n", ["libexec/prolog", "libexec/epilog"], ""),
        ("EpilogSlurmctld={}/libexec/epilogctld\n", ["libexec/epilogctld"], "slurm.conf:1:EpilogSlurmctld="),
        ("Epilog={}/libexec/epilog,/site/epilog\n", ["libexec/epilog"], "slurm.conf:1:Epilog="),
        ("ClusterName=c\nEpilog={}/libexec/epilogXlua\n", ["libexec/epilog.lua"], ""),
        ("include {}/site.conf\n", [], "slurm.conf:1:include"),
    ],
)
def test_what_slurm_names_of_a_package(tmp_path: Path, conf: str, files: list[str], named: str) -> None:
    prefix = tmp_path / "slurm-soda"
    prefix.mkdir()
    (tmp_path / "slurm.conf").write_text(conf.format(prefix))
    argv = [TOP / "install/named_by_slurm.sh", prefix, *files]
    environ = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0 if named else 1, "")
    assert named in done.stdout
    assert bool(named) == bool(done.stdout)


def test_files_that_slurm_conf_includes_are_looked_at(tmp_path: Path) -> None:
    """Where slurmctld does not answer, they alone tell."""
    prefix, included = tmp_path / "slurm-soda", tmp_path / "nodes/hooks.conf"
    prefix.mkdir()
    included.parent.mkdir()
    included.write_text(f"Prolog={prefix}/libexec/prolog\n")
    (tmp_path / "slurm.conf").write_text("include nodes/hooks.conf\n")
    argv = [TOP / "install/named_by_slurm.sh", prefix, "libexec/prolog"]
    environ = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "hooks.conf:1:Prolog=" in done.stdout) == (0, True)


@pytest.mark.parametrize("target", ["libexec/epilog", "libexec/epilogctld"])
def test_links_to_a_package_are_named(tmp_path: Path, target: str) -> None:
    prefix, hooks = tmp_path / "slurm-soda", tmp_path / "epilog.d"
    for folder in (prefix, hooks):
        folder.mkdir()
    (hooks / "50-soda").symlink_to(prefix / target)
    (tmp_path / "slurm.conf").write_text("ClusterName=c\n")
    argv = [TOP / "install/named_by_slurm.sh", prefix, "libexec/epilog"]
    environ = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (target == "libexec/epilog")

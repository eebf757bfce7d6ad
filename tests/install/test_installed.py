"""Roles installed for real, from a folder of wheels without a network, into an empty prefix."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slurm_soda.sodactl.main import COMMANDS

pytestmark = pytest.mark.thorough

TOP = Path(__file__).parents[2]
MOST_AGENT_BYTES = 30_000_000
NOT_ON_A_NODE = (
    *("alembic", "click", "docker", "fastapi", "httpx", "matplotlib", "numpy", "pip", "pydantic", "rich", "setuptools"),
    *("sqlalchemy", "uvicorn"),
)
LISTING = """
import importlib.metadata, json, sys
print(json.dumps({found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}))
"""


@dataclass(frozen=True)
class Installer:
    """A machine without network: its tools, and the folder of wheels that somebody brought."""

    wheels: Path
    tools: Path

    def pip(self, *arguments: str | Path) -> None:
        subprocess.run([self.tools / "bin" / "python", "-m", "pip", "--quiet", *arguments], check=True)

    def environ(self) -> dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        return environ | {
            "PYTHON": sys.executable,
            "TOOLS": str(self.tools),
            "PIP_FLAGS": f"--no-index --find-links {self.wheels}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        }

    def begin(self, role: str, prefix: Path) -> subprocess.Popen[str]:
        """In a process group of its own, as a shell starts make."""
        argv = [TOP / "install" / "python.sh", role, prefix]
        return subprocess.Popen(argv, env=self.environ(), start_new_session=True, stderr=subprocess.PIPE, text=True)

    def install(self, role: str, prefix: Path) -> str:
        installation = self.begin(role, prefix)
        _, said = installation.communicate()
        assert installation.returncode == 0, said
        return said


@pytest.fixture(scope="module")
def installer(tmp_path_factory: pytest.TempPathFactory) -> Installer:
    """With the wheels of every lock that an install reads, fetched once: this alone uses the network."""
    top = tmp_path_factory.mktemp("installer")
    made = Installer(top / "wheels", top / "tools")
    subprocess.run([sys.executable, "-m", "venv", made.tools], check=True)
    for lock in ("requirements-agent.lock", "requirements-build.lock", "requirements-controller.lock"):
        made.pip("download", "--no-deps", "--only-binary=:all:", "-r", TOP / lock, "--dest", made.wheels)
    return made


def run(prefix: Path, *argv: str) -> str:
    """Run a program of the prefix, with nothing of this environment's."""
    command = [prefix / "bin" / argv[0], *argv[1:]]
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(prefix: Path) -> dict[str, Any]:
    listing: dict[str, Any] = json.loads(run(prefix, "python", "-c", LISTING))
    return listing


def normalised(names: Sequence[str]) -> set[str]:
    return {name.lower().replace("_", "-").replace(".", "-") for name in names}


def importable(prefix: Path, modules: Sequence[str]) -> list[str]:
    program = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    return run(prefix, "python", "-c", program, *modules).split()


def size_of(folder: Path) -> int:
    """As du counts; Python itself is linked, not copied."""
    return sum(path.lstat().st_blocks * 512 for path in [folder, *folder.rglob("*")] if not path.is_symlink())


def check_is_a_node(prefix: Path, roles: ModuleType) -> None:
    lock = (TOP / "requirements-agent.lock").read_text("utf-8")
    linux = roles.locked(lock).keys() - {"win-inet-pton"}
    assert normalised(list(installed(prefix))) == linux | {"slurm-soda"}
    assert importable(prefix, NOT_ON_A_NODE) == []
    assert importable(prefix, roles.AGENT_ENTRIES) == list(roles.AGENT_ENTRIES)
    commands = {path.name for path in (prefix / "bin").iterdir()}
    assert "soda-agent" in commands
    assert commands.isdisjoint({"sodactl", "sodad", "pip", "pip3"})


def test_a_node_in_an_empty_prefix(installer: Installer, roles: ModuleType, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    installer.install("agent", prefix)
    check_is_a_node(prefix, roles)
    size = size_of(prefix)
    print(f"agent role: {size / 1e6:.1f} MB")
    assert size <= MOST_AGENT_BYTES
    assert "soda-agent" in run(prefix, "soda-agent", "--help")
    modules = sorted(
        path.relative_to(site_of(prefix)).as_posix() for path in site_of(prefix).glob("slurm_soda/**/*.py")
    )
    run(prefix, "python", "-c", "import sys, importlib\nfor n in sys.argv[1:]: importlib.import_module(n)",
        *(roles.module_name(path) for path in modules))  # fmt: skip
    installer.pip("--python", prefix / "bin" / "python", "check")


def site_of(prefix: Path) -> Path:
    return next(prefix.glob("lib/slurm-soda/current/lib/python3.*/site-packages"))


def parts(prefix: Path) -> list[str]:
    """What there is of environments and packages, by kind."""
    return sorted(path.name.partition(".")[0] for path in (prefix / "lib" / "slurm-soda").glob("[a-z]*.*"))


WHOLE = ["environment", "packages"]


def test_a_prefix_of_earlier_releases(installer: Installer, roles: ModuleType, tmp_path: Path) -> None:
    """It was an environment itself, with pip; whoever runs from it goes on, and the next installation removes it."""
    prefix = tmp_path / "prefix"
    subprocess.run([sys.executable, "-m", "venv", prefix], check=True)
    site = next(prefix.glob("lib/python3.*/site-packages"))
    (site / "slurm_soda").mkdir()
    (site / "slurm_soda-0.1.dist-info").mkdir()
    (site / "slurm_soda-0.1.dist-info/RECORD").write_text("../../../bin/soda-agent,,\n../../../bin/alembic,,\n")
    for name in ("soda-agent", "alembic"):
        (prefix / "bin" / name).write_text(f"#!{prefix}/bin/python\nimport time; time.sleep(600)\n")
        (prefix / "bin" / name).chmod(0o755)
    running = subprocess.Popen([prefix / "bin" / "soda-agent"])
    try:
        installer.install("agent", prefix)
        assert (site / "slurm_soda").is_dir()
    finally:
        running.kill()
        running.wait()
    installer.install("agent", prefix)
    assert not site.exists()
    assert {path.name for path in (prefix / "bin").iterdir()} == {"python", "soda-agent"}
    assert sorted(path.name for path in prefix.iterdir() if path.name != "lib64") == ["bin", "lib"]
    check_is_a_node(prefix, roles)


def test_what_is_installed_stays(installer: Installer, tmp_path: Path) -> None:
    """A site of one machine, on which somebody installs a node: sodad's units go on finding sodactl."""
    prefix = tmp_path / "prefix"
    installer.install("all", prefix)
    targets = {
        command.target.partition(":")[0] for name, command in COMMANDS.items() if name not in ("demo", "cluster")
    }
    load = "import sys, importlib\nfor n in sys.argv[1:]: importlib.import_module(n)"
    for said in (installer.install(role, prefix) for role in ("login", "agent")):
        assert "has controller already, and keeps it" in said
        assert {path.name for path in (prefix / "bin").iterdir()} == {"python", "sodactl", "sodad", "soda-agent"}
        run(prefix, "python", "-c", load, *sorted(targets), "slurm_soda.daemon.main", "slurm_soda.agent.main")
        assert importable(prefix, ["pip", "docker", "fastapi", "numpy", "psutil"]) == ["fastapi", "numpy", "psutil"]
        assert parts(prefix) == WHOLE
    assert "fifo" in run(prefix, "sodactl", "policy", "--help") + run(prefix, "sodactl", "compare", "--help")


LATE = "import sys; print('begun', flush=True); sys.stdin.read(); import slurm_soda.agent.main, psutil; print('done')"


def test_what_runs_goes_on_with_its_files(installer: Installer, tmp_path: Path) -> None:
    """A daemon imports some modules late; its environment goes when nobody runs from it any more."""
    prefix = tmp_path / "prefix"
    installer.install("agent", prefix)
    argv = [prefix / "bin" / "python", "-c", LATE]
    running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    packages = next(prefix.glob("lib/slurm-soda/packages.*"))
    next(packages.glob("psutil/__init__.py")).unlink()  # so that they are made anew as well
    installer.install("agent", prefix)
    assert len(parts(prefix)) > len(WHOLE)
    (packages / "psutil" / "__init__.py").write_text("")
    assert running.communicate("")[0] == "done\n"
    installer.install("agent", prefix)
    assert parts(prefix) == WHOLE
    assert run(prefix, "python", "-c", "import psutil; print(psutil.cpu_count() > 0)") == "True\n"


@pytest.mark.sample(4)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
def test_an_installation_that_is_killed_takes_nothing_away(installer: Installer, tmp_path: Path, share: float) -> None:
    prefix = tmp_path / "prefix"
    began_s = time.monotonic()
    installer.install("agent", prefix)
    took_s = time.monotonic() - began_s
    shutil.rmtree(next(prefix.glob("lib/slurm-soda/packages.*")) / "pyroute2" / "netlink")  # they are made anew as well
    installation = installer.begin("agent", prefix)
    time.sleep(share * took_s)
    os.killpg(installation.pid, signal.SIGKILL)
    installation.communicate()
    assert "soda-agent" in run(prefix, "soda-agent", "--help")
    installer.install("agent", prefix)
    assert parts(prefix) == WHOLE
    assert sorted(path.name for path in (prefix / "bin").iterdir()) == ["python", "soda-agent"]


def test_two_installations_at_once(installer: Installer, roles: ModuleType, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    both = [installer.begin("agent", prefix) for _ in range(2)]
    said = [one.communicate()[1] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sum("waiting for it" in text for text in said) == 1
    assert parts(prefix) == WHOLE
    check_is_a_node(prefix, roles)


def test_what_does_not_start_is_not_switched_to(installer: Installer, tmp_path: Path) -> None:
    """As when a package does not fit this machine."""
    prefix = tmp_path / "prefix"
    installer.install("agent", prefix)
    before = (prefix / "lib/slurm-soda/current").readlink()
    damaged = next(prefix.glob("lib/slurm-soda/packages.*")) / "psutil" / "_common"
    damaged.mkdir()
    (damaged / "__init__.py").write_text("raise ImportError('does not fit')\n")
    installation = installer.begin("agent", prefix)
    _, said = installation.communicate()
    assert installation.returncode == 1
    assert "does not start" in said
    assert (prefix / "lib/slurm-soda/current").readlink() == before
    shutil.rmtree(damaged)
    assert "soda-agent" in run(prefix, "soda-agent", "--help")
    assert parts(prefix) == WHOLE


def test_another_role_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [TOP / "install" / "python.sh", "nodes", tmp_path / "prefix"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert "all, agent, controller or login" in done.stderr
    assert not (tmp_path / "prefix").exists()

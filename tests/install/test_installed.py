"""Roles installed for real, from a folder of wheels without a network, into an empty prefix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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

    def install(self, role: str, prefix: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        environ |= {
            "PYTHON": sys.executable,
            "PIP_FLAGS": f"--no-index --find-links {self.wheels}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        }
        subprocess.run([TOP / "install" / "python.sh", role, prefix], env=environ, check=True)


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
    return next(prefix.glob("lib/python3.*/site-packages"))


def test_an_install_leaves_nothing_of_the_one_before(installer: Installer, roles: ModuleType, tmp_path: Path) -> None:
    """A prefix as earlier versions made it, with pip; then everything; then a node alone."""
    prefix = tmp_path / "prefix"
    subprocess.run([sys.executable, "-m", "venv", prefix], check=True)
    installer.install("all", prefix)
    assert {"sodactl", "sodad", "soda-agent"} <= {path.name for path in (prefix / "bin").iterdir()}
    assert importable(prefix, ["pip", "docker", "fastapi", "numpy", "psutil"]) == ["fastapi", "numpy", "psutil"]
    targets = {
        command.target.partition(":")[0] for name, command in COMMANDS.items() if name not in ("demo", "cluster")
    }
    load = "import sys, importlib\nfor n in sys.argv[1:]: importlib.import_module(n)"
    run(prefix, "python", "-c", load, *sorted(targets), "slurm_soda.daemon.main", "slurm_soda.agent.main")
    installer.install("login", prefix)
    assert importable(prefix, ["fastapi", "numpy", "psutil"]) == ["numpy"]
    run(prefix, "python", "-c", load, *sorted(targets))
    assert "fifo" in run(prefix, "sodactl", "policy", "--help") + run(prefix, "sodactl", "compare", "--help")
    installer.install("agent", prefix)
    check_is_a_node(prefix, roles)


def test_another_role_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [TOP / "install" / "python.sh", "nodes", tmp_path / "prefix"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert "all, agent, controller or login" in done.stderr
    assert not (tmp_path / "prefix").exists()

"""For each role: what is declared is what is imported, its lock holds that and no more, and so does a node's wheel."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Collection, Iterable
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from slurm_soda.sodactl.main import COMMANDS

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULES = {"nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client", "scikit-learn": "sklearn"}
"""Of distributions whose module has another name."""
CONTAINER_COMMANDS = ("cluster", "demo")
ONLY_SODAD = {"alembic"}
"""Within sodactl's reach, and not imported by it: sodad alone makes and upgrades the store."""
ROOT_NEVER_LOADS = (
    *("alembic", "click", "docker", "fastapi", "httpx", "matplotlib", "numpy", "pip", "psycopg", "pydantic", "rich"),
    *("prometheus_client", "setuptools", "sqlalchemy", "uvicorn"),
)
LOCKS = {
    "agent": "requirements-agent.lock",
    "build": "requirements-build.lock",
    "controller": "requirements-controller.lock",
    "login": "requirements.lock",
    "postgresql": "requirements-postgresql.lock",
    "serving": "requirements-serving.lock",
    "dev": "requirements-dev.lock",
}


def modules_of(requirements: Iterable[str]) -> set[str]:
    names = {Requirement(line).name for line in requirements}
    return {MODULES.get(name, name) for name in names}


def imported_by(text: str) -> set[str]:
    """Top-level modules that a text names, wherever it stands in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def targets(names: Collection[str]) -> list[str]:
    return [COMMANDS[name].target.partition(":")[0] for name in names]


BASE = modules_of(PROJECT["dependencies"])


def test_the_base_is_what_sodactl_and_the_simulator_import(roles: ModuleType, sources: dict[str, str]) -> None:
    entries = ["slurm_soda.sodactl.main", *targets(COMMANDS.keys() - CONTAINER_COMMANDS)]
    assert roles.imports_of(entries, sources).others - ONLY_SODAD == BASE


def test_the_agent_and_the_hooks_import_their_extra_and_nothing_else(
    roles: ModuleType, sources: dict[str, str]
) -> None:
    assert roles.imports_of(roles.AGENT_ENTRIES, sources).others == modules_of(EXTRAS["agent"])


@pytest.mark.parametrize(
    ("extra", "entries"), [("controller", ["slurm_soda.daemon.main"]), ("demo", targets(CONTAINER_COMMANDS))]
)
def test_an_extra_is_what_its_role_imports_besides(
    roles: ModuleType, sources: dict[str, str], extra: str, entries: list[str]
) -> None:
    assert roles.imports_of(entries, sources).others - BASE == modules_of(EXTRAS[extra])


def test_the_simulators_extra_is_the_part_of_the_base_that_it_imports(
    roles: ModuleType, sources: dict[str, str]
) -> None:
    entries = [name for name in sources if name.startswith("slurm_soda.simulator.")]
    assert roles.imports_of(entries, sources).others == modules_of(EXTRAS["simulator"])
    assert set(EXTRAS["simulator"]) <= set(PROJECT["dependencies"])


def test_learning_imports_its_extra(sources: dict[str, str]) -> None:
    texts = [text for name, text in sources.items() if name.startswith("slurm_soda.learning.")]
    asked = {name for text in texts for name in re.findall(r'\bimport_library\("(\w+)', text)}
    assert asked == modules_of(EXTRAS["learn"])


def test_the_example_of_a_server_imports_its_extra_and_nothing_else() -> None:
    programs = {path.stem: path.read_text("utf-8") for path in (TOP / "examples" / "serving").glob("*.py")}
    assert "serve" in programs
    imported = set().union(*(imported_by(text) for text in programs.values()))
    assert imported - sys.stdlib_module_names - programs.keys() == modules_of(EXTRAS["serving"])


def test_whatever_is_imported_anywhere_is_declared(roles: ModuleType, sources: dict[str, str]) -> None:
    declared = BASE.union(*(modules_of(EXTRAS[extra]) for extra in EXTRAS if extra != "dev"))
    by_name = modules_of(EXTRAS["learn"]) | modules_of(EXTRAS["postgresql"])
    by_name |= modules_of(EXTRAS["serving"]) - BASE  # of users' servers
    assert roles.imports_of(list(sources), sources).others == declared - by_name


def test_what_tests_and_benchmarks_import_is_declared() -> None:
    imported: set[str] = set()
    for path in [*(TOP / "tests").rglob("*.py"), *(TOP / "benchmarks").rglob("*.py")]:
        imported |= imported_by(path.read_text("utf-8"))
    ours = {"slurm_soda", "tests", "benchmarks", "lint", "install"}
    elsewhere = {"torch"}  # of the machine with a GPU that benchmarks/colocation measures
    declared = BASE.union(*(modules_of(lines) for lines in EXTRAS.values()))
    assert imported - sys.stdlib_module_names - ours - elsewhere - declared == set()


def test_development_has_every_extra() -> None:
    own = next(requirement for line in EXTRAS["dev"] if (requirement := Requirement(line)).name == PROJECT["name"])
    assert own.extras | {"dev", "simulator"} == EXTRAS.keys()


def test_the_hooks_import_what_a_nodes_wheel_is_made_of(roles: ModuleType) -> None:
    hooks = (TOP / "prolog" / "prolog").read_text() + (TOP / "epilog" / "epilog").read_text()
    imported = set(re.findall(r"from (slurm_soda\S+) import", hooks))
    assert imported | {PROJECT["scripts"]["soda-agent"].partition(":")[0]} == set(roles.AGENT_ENTRIES)


def test_the_agent_runs_with_its_extra_alone(roles: ModuleType) -> None:
    """With all else out of reach, what it imports late too (pyroute2), in an interpreter of its own."""
    program = f"""
import sys
allowed = {sorted(modules_of(EXTRAS["agent"]) | {"slurm_soda"} | sys.stdlib_module_names)!r}
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refusing())
import importlib
for name in {sorted({*roles.AGENT_ENTRIES, *modules_of(EXTRAS["agent"])})!r}:
    importlib.import_module(name)
from slurm_soda.agent.agent import Agent
from slurm_soda.agent.settings.agent_config import AgentConfig
from slurm_soda.agent.main import build_agent
spool = sys.argv[1] + "/spool"
assert isinstance(build_agent(AgentConfig(spool=spool, state=sys.argv[1]), keeps=True), Agent)
loaded = {{name.partition(".")[0] for name in sys.modules}}
print(*sorted(loaded & {set(ROOT_NEVER_LOADS)!r}))
"""
    done = subprocess.run([sys.executable, "-c", program, "/nonexistent"], capture_output=True, text=True, check=False)
    assert "spool" in done.stderr, done.stderr  # it came as far as to find that its directory cannot be made


def closure(requirements: Iterable[str]) -> set[str]:
    """Distributions that requirements come to on this Python, by the metadata of what is installed here."""
    found: set[tuple[str, frozenset[str]]] = set()
    ahead = [Requirement(line) for line in requirements]
    while ahead:
        requirement = ahead.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        key = (name, frozenset(requirement.extras))
        if key in found:
            continue
        found.add(key)
        for line in requires(name) or []:
            more = Requirement(line)
            extras: Iterable[str] = requirement.extras or ("",)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in extras):
                ahead.append(more)
    return {name for name, _ in found}


def pins(lock: str) -> dict[str, str]:
    """Versions by name, of those lines that hold on this Python."""
    found = {}
    for line in (TOP / lock).read_text("utf-8").splitlines():
        wanted, _, marker = line.rstrip("\\ ").partition(" ; ")
        name, pinned, version = wanted.partition("==")
        if pinned and not line.startswith((" ", "#")) and (not marker or Marker(marker).evaluate()):
            found[name.partition("[")[0]] = version
    return found


@pytest.mark.parametrize("role", ["agent", "build", "controller", "login", "postgresql", "serving"])
def test_a_lock_holds_what_its_role_needs_and_no_more(roles: ModuleType, role: str) -> None:
    assert pins(LOCKS[role]).keys() == closure(roles.requirements(role)), "make lock"


def test_all_locks_pin_the_same_versions() -> None:
    everything = pins(LOCKS["dev"])
    for lock in LOCKS.values():
        assert pins(lock).items() <= everything.items(), f"make lock: {lock}"


def test_every_locked_file_has_a_hash() -> None:
    for lock in LOCKS.values():
        text = (TOP / lock).read_text("utf-8")
        entries = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
        assert entries
        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_a_node_has_none_of_what_others_need() -> None:
    assert {name.lower() for name in pins(LOCKS["agent"])}.isdisjoint(ROOT_NEVER_LOADS)


METADATA = """\
Metadata-Version: 2.4
Name: slurm-soda
Requires-Dist: click>=8.3
Provides-Extra: agent
Requires-Dist: psutil>=7.2; extra == "agent"
Provides-Extra: agentless
Requires-Dist: docker>=7; extra == "agentless"

Requires-Dist: is a word of the description; extra == "agent"
"""
ENTRY_POINTS = """\
[console_scripts]
soda-agent = slurm_soda.agent.main:main
sodactl = slurm_soda.sodactl.main:main
sodad = slurm_soda.daemon.main:main
"""


@pytest.fixture(scope="module")
def whole(sources: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with all our modules, as setuptools makes it."""
    path = tmp_path_factory.mktemp("whole") / "slurm_soda-0.1.0-py3-none-any.whl"
    packages = {name.rpartition(".")[0] for name in sources} | {"slurm_soda"}
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in sources.items():
            file = name.replace(".", "/") + ("/__init__.py" if name in packages else ".py")
            wheel.writestr(file, text)
        wheel.writestr("slurm_soda/simulator/whatif/demo-stock.txt", "data")
        wheel.writestr("slurm_soda-0.1.0.dist-info/METADATA", METADATA)
        wheel.writestr("slurm_soda-0.1.0.dist-info/entry_points.txt", ENTRY_POINTS)
        wheel.writestr("slurm_soda-0.1.0.dist-info/RECORD", "")
    return path


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("role", "commands"),
    [
        ("agent controller", ["soda-agent", "sodactl", "sodad"]),
        ("agent login", ["soda-agent", "sodactl"]),
        ("controller postgresql login", ["sodactl", "sodad"]),
        ("agent", ["soda-agent"]),
        ("controller", ["sodactl", "sodad"]),
        ("login", ["sodactl"]),
    ],
)
def test_a_roles_wheel_has_its_commands_and_says_truly_what_is_in_it(
    roles: ModuleType, whole: Path, tmp_path: Path, role: str, commands: list[str]
) -> None:
    files = contents(roles.role_wheel(role.split(), whole, tmp_path))
    entry_points = files["slurm_soda-0.1.0.dist-info/entry_points.txt"].decode().splitlines()
    assert [line.partition(" = ")[0] for line in entry_points[1:]] == commands
    assert (len(files) == len(contents(whole))) == (role != "agent")
    record: dict[str, Any] = {}
    for name, digest, size in csv.reader(files["slurm_soda-0.1.0.dist-info/RECORD"].decode().splitlines()):
        record[name] = (digest, size)
    assert record.keys() == files.keys()
    for name, content in files.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        expected = ("", "") if name.endswith("/RECORD") else (f"sha256={hashed}", str(len(content)))
        assert record[name] == expected


def test_a_nodes_wheel_has_what_it_imports_alone(
    roles: ModuleType, whole: Path, sources: dict[str, str], tmp_path: Path
) -> None:
    files = contents(roles.role_wheel(["agent"], whole, tmp_path))
    modules = {roles.module_name(name) for name in files if name.endswith(".py")}
    assert modules == roles.imports_of(roles.AGENT_ENTRIES, sources).modules
    assert not [name for name in files if not name.endswith(".py") and ".dist-info/" not in name]
    heavy = ("daemon", "sodactl", "simulator", "learning", "demo", "containers")
    assert not [name for name in modules if name.split(".")[1:2] and name.split(".")[1] in heavy]
    lines = files["slurm_soda-0.1.0.dist-info/METADATA"].decode().splitlines()
    assert [line for line in lines if line.startswith("Requires-Dist:")] == [
        "Requires-Dist: psutil>=7.2",
        'Requires-Dist: is a word of the description; extra == "agent"',
    ]
    assert not [line for line in lines if line.startswith("Provides-Extra:")]


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import slurm_soda.b", {"slurm_soda.b"}),
        ("from slurm_soda import b", {"slurm_soda.b"}),
        ("from slurm_soda.b import name", {"slurm_soda.b"}),
        ("def late():\n    from slurm_soda import b", {"slurm_soda.b"}),
        ("if TYPE_CHECKING:\n    import slurm_soda.b", set()),
        ("if typing.TYPE_CHECKING:\n    import x\nelse:\n    import slurm_soda.b", {"slurm_soda.b"}),
        ("import os.path, numpy.linalg", {"numpy"}),
    ],
)
def test_imports_are_followed(roles: ModuleType, text: str, imported: set[str]) -> None:
    found = roles.imports_of(["slurm_soda.a"], {"slurm_soda": "", "slurm_soda.a": text, "slurm_soda.b": ""})
    assert found.modules | found.others == {"slurm_soda", "slurm_soda.a"} | imported


def test_a_module_that_is_not_there_is_an_error(roles: ModuleType) -> None:
    with pytest.raises(KeyError, match=r"slurm_soda\.b"):
        roles.imports_of(["slurm_soda"], {"slurm_soda": "import slurm_soda.b"})


def test_the_licence_is_named_and_there() -> None:
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (TOP / "LICENSE").read_text("utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text

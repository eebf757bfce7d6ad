"""The Python part of all packages, laid out once below a root, with the package that each file is for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from install import roles
from install.deb.contents import ENVIRONMENT, PREFIX, STORE, divide, normalised

Files = dict[str, str]
"""Role by path below the root."""

COMMANDS = {"soda-agent": "agent", "sodactl": "login", "sodad": "controller"}
"""Role of each command."""
_LEFT_OUT_SUFFIXES = (".pyi", ".pxd", ".h", ".hpp", ".a", ".lib", ".pyc")
"""Only compilers and type checkers read them; compiled modules are made anew."""
_NEEDED_OF_TESTS = "numpy/_core/tests/_natype.py"
"""numpy.testing imports it."""
_SCRIPT = """\
#!/{environment}/bin/python
import sys
from {module} import {function}
if __name__ == "__main__":
    sys.exit({function}())
"""
_PYTHON = """\
#!/bin/sh
exec "$(/usr/bin/readlink -f "/{store}/current")/bin/python" "$@"
"""


@dataclass(frozen=True, slots=True)
class PythonParts:
    """What pip has brought, and our own wheel."""

    packages: Path
    """A folder with what the locks name (install/packages.sh)."""
    wheel: Path


def lay_out(parts: PythonParts, root: Path, top: Path, wanted: Collection[str]) -> Files:
    """What these roles have of Python, below ``root``; which package has each file."""
    site = root / ENVIRONMENT / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    site.mkdir(parents=True)
    files = _third_party(parts.packages, site, top, wanted) | _own(parts.wheel, site)
    below = site.relative_to(root)
    laid = {str(below / path): role for path, role in files.items()}
    _compile(site, root)
    for path in site.rglob("*.pyc"):
        source = path.parent.parent / f"{path.name.rpartition('.cpython')[0]}.py"
        laid[str(path.relative_to(root))] = laid[str(source.relative_to(root))]
    return laid | _environment(root, parts.wheel)


def _third_party(packages: Path, site: Path, top: Path, wanted: Collection[str]) -> Files:
    project = tomllib.loads((top / "pyproject.toml").read_text("utf-8"))["project"]
    found = {normalised(one.metadata["Name"]): one for one in distributions(path=[str(packages)])}
    roles_of = divide(project["dependencies"], project["optional-dependencies"], found)
    files: Files = {}
    for name, distribution in found.items():
        if roles_of[name] not in wanted:
            continue
        for path in _wanted(distribution):
            _place(packages / path, site / path)
            files[str(path)] = roles_of[name]
    return files


def _wanted(distribution: Distribution) -> Iterator[PurePosixPath]:
    """Files of a distribution inside its folder, without tests, and without its list of them, of which dpkg has its own."""
    for file in distribution.files or ():
        path = PurePosixPath(file)
        info = path.parts[0].endswith(".dist-info")
        if path.parts[0] in ("..", "bin", "share", "include") or path.suffix in _LEFT_OUT_SUFFIXES:
            continue
        if info and path.name in ("RECORD", "REQUESTED", "direct_url.json"):
            continue
        if "tests" in path.parts[:-1] and str(path) != _NEEDED_OF_TESTS:
            continue
        yield path


def _own(wheel: Path, site: Path) -> Files:
    """Our modules: those that a node needs are common, all others come with sodactl."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    sources = {roles.module_name(name): text.decode() for name, text in contents.items() if name.endswith(".py")}
    needed = roles.imports_of(roles.AGENT_ENTRIES, sources).modules
    files: Files = {}
    for name, content in contents.items():
        if name.endswith(".dist-info/RECORD"):
            continue
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        of_node = ".dist-info/" in name or (name.endswith(".py") and roles.module_name(name) in needed)
        files[name] = "common" if of_node else "login"
    return files


def _compile(site: Path, root: Path) -> None:
    """Compiled modules that hold whatever the files' dates are: the same from each build, never written again by root."""
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "-s",
        root,
        "-p",
        "/",
        "--invalidation-mode",
        "unchecked-hash",
        site,
    ]
    subprocess.run(argv, check=True, env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"})


def _environment(root: Path, wheel: Path) -> Files:
    """A virtual environment, as `python3 -m venv` makes it, without the names of the machine that built it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    settings = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    files = {f"{ENVIRONMENT}/pyvenv.cfg": "common", f"{PREFIX}/bin/python": "common"}
    write(root / ENVIRONMENT / "pyvenv.cfg", settings)
    write(root / PREFIX / "bin/python", _PYTHON.format(store=STORE), 0o755)
    links = {
        f"{ENVIRONMENT}/bin/python": f"/usr/bin/python{version}",
        f"{ENVIRONMENT}/bin/python3": "python",
        f"{STORE}/current": "packaged",
    }
    for path, leads_to in links.items():
        link(root / path, leads_to)
        files[path] = "common"
    for command, (module, function) in _entry_points(wheel).items():
        role = COMMANDS[command]
        script = _SCRIPT.format(environment=ENVIRONMENT, module=module, function=function)
        write(root / ENVIRONMENT / "bin" / command, script, 0o755)
        link(root / PREFIX / "bin" / command, f"/{STORE}/current/bin/{command}")
        files |= {f"{ENVIRONMENT}/bin/{command}": role, f"{PREFIX}/bin/{command}": role}
    return files


def _entry_points(wheel: Path) -> Mapping[str, tuple[str, str]]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/entry_points.txt")]
        lines = archive.read(name).decode().splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {command.strip(): _halves(target.strip()) for command, _, target in pairs}


def _halves(target: str) -> tuple[str, str]:
    module, _, function = target.partition(":")
    return module, function


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 and target.suffix != ".py" else 0o644)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """A new file with this text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)


def link(path: Path, leads_to: str) -> None:
    """A new symbolic link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(leads_to)

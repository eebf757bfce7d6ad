"""What a machine of each role gets: the third-party packages that it needs, and its part of our own wheel.

    python install/roles.py requirements ROLE                 what its lock is made of, from pyproject.toml
    python install/roles.py wheel 'ROLE...' WHEEL FOLDER      its own wheel into FOLDER, made from the whole one
    python install/roles.py whole FOLDER                      whether all packages in it have all their files; by the status

It runs before anything is installed, so by the standard library alone.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import sys
import tomllib
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PACKAGE = "slurm_soda"
DISTRIBUTION = "slurm-soda"
COMMANDS = {
    "agent": ("soda-agent",),
    "controller": ("sodactl", "sodad"),
    "login": ("sodactl",),
    "postgresql": (),
}
"""Roles of machines, and the commands that each gets; a machine may have several. ``postgresql`` adds a driver alone."""
AGENT_ENTRIES = (
    "slurm_soda.agent.main",
    "slurm_soda.epilog.main",
    "slurm_soda.prolog.main",
    "slurm_soda.wire.failsafe",
)
"""What a node runs: the agent, and what prolog and epilog import."""


@dataclass(frozen=True, slots=True)
class Imports:
    """What some modules import, and what these import, and so on, wherever in a file it stands."""

    modules: frozenset[str]
    """Of our own, packages included."""
    others: frozenset[str]
    """Top-level modules that are neither ours nor the standard library's."""


def imports_of(entries: Sequence[str], sources: Mapping[str, str]) -> Imports:
    """All that ``entries`` import. ``sources`` are the texts of our modules by dotted name, a package's being its __init__.

    Raises:
        KeyError: a module of ours that is imported is not there.
    """
    modules: set[str] = set()
    others: set[str] = set()
    ahead = list(entries)
    while ahead:
        name = ahead.pop()
        if name in modules:
            continue
        modules.add(name)
        if "." in name:
            ahead.append(name.rpartition(".")[0])
        for module, member in _imported(sources[name]):
            if module.partition(".")[0] == PACKAGE:
                ahead.append(module)
                if f"{module}.{member}" in sources:
                    ahead.append(f"{module}.{member}")
            else:
                others.add(module.partition(".")[0])
    return Imports(frozenset(modules), frozenset(others) - sys.stdlib_module_names)


@cache
def _imported(text: str) -> tuple[tuple[str, str], ...]:
    """Modules that a text imports, with the member that is taken of each; what only type checkers see is left out."""
    found: list[tuple[str, str]] = []
    ahead: list[ast.AST] = [ast.parse(text)]
    while ahead:
        node = ahead.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                ahead += node.orelse
                continue
            case ast.Import():
                found += ((alias.name, "") for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                found += ((module, alias.name) for alias in node.names)
            case ast.ImportFrom():
                raise SystemExit(f"line {node.lineno}: relative imports are not followed here")
        ahead += ast.iter_child_nodes(node)
    return tuple(found)


def module_name(path: str) -> str:
    """Dotted name of the module in a file, the path being relative to the folder with the package."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def requirements(role: str) -> list[str]:
    """What a role's lock is made of; ``build`` is what builds our wheel, ``serving`` what the example of a service runs.

    These and a node's requirements stand alone, all other roles have the base ones too.
    """
    declared = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    if role == "build":
        return list(declared["build-system"]["requires"])
    extras = declared["project"]["optional-dependencies"]
    base = [] if role in ("agent", "serving") else declared["project"]["dependencies"]
    return [*base, *extras.get(role, [])]


def role_wheel(roles: Sequence[str], whole: Path, folder: Path) -> Path:
    """Make the wheel of some roles: the whole one without the commands of others. A mere node's has only what it imports."""
    only_node = list(roles) == ["agent"]
    commands = {command for role in roles for command in COMMANDS[role]}
    made = folder / whole.name
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        if only_node:
            sources = {module_name(name): content.decode() for name, content in files.items() if name.endswith(".py")}
            needed = imports_of(AGENT_ENTRIES, sources).modules
            files = {
                name: content
                for name, content in files.items()
                if not name.startswith(f"{PACKAGE}/") or (name.endswith(".py") and module_name(name) in needed)
            }
        for name in [name for name in files if name.endswith(".dist-info/entry_points.txt")]:
            files[name] = _lines_of(commands, files[name])
        for name in [name for name in files if only_node and name.endswith(".dist-info/METADATA")]:
            files[name] = _needing_only("agent", files[name])
        record = next(name for name in files if name.endswith(".dist-info/RECORD"))
        del files[record]
        lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
        files[record] = "".join(f"{line}\n" for line in [*lines, f"{record},,"]).encode()
        for name, content in files.items():
            target.writestr(name, content)
    return made


def _lines_of(commands: Collection[str], entry_points: bytes) -> bytes:
    lines = entry_points.decode().splitlines()
    kept = [line for line in lines if "=" not in line or line.partition("=")[0].strip() in commands]
    return "".join(f"{line}\n" for line in kept).encode()


def _needing_only(extra: str, metadata: bytes) -> bytes:
    """Metadata whose only requirements are those of one extra."""
    head, separator, description = metadata.decode().partition("\n\n")
    kept = []
    for line in head.splitlines():
        needs, _, marker = line.partition(";")
        if not line.startswith(("Requires-Dist:", "Provides-Extra:")):
            kept.append(line)
        elif re.fullmatch(rf"\s*extra == [\"']{extra}[\"']\s*", marker):
            kept.append(needs.rstrip())
    return ("\n".join(kept) + separator + description).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def locked(lock: str) -> dict[str, str]:
    """Versions by normalised name, from the text of a lock."""
    return {_normalised(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", lock, re.M)}


def is_whole(packages: Path) -> bool:
    """Whether there are packages, and each has all files that it lists, as they came; their commands are not looked at."""
    found = list(distributions(path=[str(packages)]))
    files = [
        file for one in found for file in one.files or () if not str(file).startswith("..") and file.hash is not None
    ]
    return bool(found) and all(
        file.hash and _is_as_it_came(Path(str(file.locate())), file.hash.value) for file in files
    )


def _is_as_it_came(path: Path, digest: str) -> bool:
    try:
        return _digest(path.read_bytes()) == digest
    except OSError:
        return False


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(argv: Sequence[str]) -> None:
    """Do what the arguments say."""
    match argv:
        case ["requirements", role]:
            lines = requirements(role)
        case ["wheel", roles, wheel, folder] if set(roles.split()) <= COMMANDS.keys():
            lines = [str(role_wheel(roles.split(), Path(wheel), Path(folder)))]
        case ["whole", packages]:
            sys.exit(not is_whole(Path(packages)))
        case _:
            raise SystemExit(__doc__)
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(sys.argv[1:])

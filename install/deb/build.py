"""Debian packages of every role, our wheel and sdist, and an index by which apt takes the folder for a source of packages.

`make packages` runs it, with what it knows in the environment: NODE_HOOKS, CONTROLLER_HOOKS, LUA and SHARED (files that it
installs), STORE, TOOLS and PIP_FLAGS as for install/python.sh, PACKAGES_STORE (where install/packages.sh finds packages
that are there already), REVISION, SOURCE_DATE_EPOCH, SLURM_CFLAGS, ONLY (some roles). It runs by Debian's own Python, and
needs nothing but the standard library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from install.deb.archive import SCRIPTS, Build, Contents, make_archive, write_index
from install.deb.contents import PACKAGES, DebianPackage, spank_package
from install.deb.other_files import OtherFiles
from install.deb.python_files import Files, PythonParts, lay_out
from install.deb.sources import Sources

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def main(out: Path, environ: Mapping[str, str]) -> None:
    """Build everything into ``out``, which loses what an earlier build has left there.

    Raises:
        SystemExit: this machine cannot build them.
    """
    if not Path("/usr/bin", PYTHON).exists():
        raise SystemExit(
            f"packages are for Debian's own Python, and this one, {sys.executable}, is another: PYTHON=/usr/bin/python3"
        )
    only = set(environ.get("ONLY", "").split())
    if unknown := only - {package.role for package in PACKAGES} - {"spank"}:
        raise SystemExit(
            f"ONLY names {' '.join(sorted(unknown))}: it may be {' '.join(p.role for p in PACKAGES)} and spank"
        )
    out.mkdir(parents=True, exist_ok=True)
    for pattern in ("*.deb", "*.whl", "*.tar.gz", "Packages*"):
        for old in out.glob(pattern):
            old.unlink()
    with tempfile.TemporaryDirectory(prefix="slurm-soda-packages-") as folder:
        _build(Path(folder), out, environ, only or {package.role for package in PACKAGES} | {"spank"})


def _build(work: Path, out: Path, environ: Mapping[str, str], wanted: set[str]) -> None:
    epoch_s = int(environ.get("SOURCE_DATE_EPOCH") or (TOP / "pyproject.toml").stat().st_mtime)
    sources = Sources(TOP, work, epoch_s, environ)
    parts = PythonParts(sources.packages(_locks(wanted, environ)), sources.wheel(out))
    if not environ.get("ONLY"):
        sources.sdist(out)
    root = work / "root"
    others = OtherFiles(TOP, root, work, environ)
    files: Files = {}
    if wanted - {"spank"}:
        files |= lay_out(parts, root, TOP, wanted)
        files |= others.of_hooks() | others.of_units() | others.of_documents(parts.packages, sources.source)
    slurm = others.spank(files) if "spank" in wanted else None
    packages = [package for package in PACKAGES if package.role in wanted]
    if "postgresql" not in environ.get("STORE", ""):
        packages = [package for package in packages if package.role != "postgresql"]
    if slurm is not None:
        packages.append(spank_package(slurm))
    build = Build(
        version=f"{_version()}-{environ.get('REVISION') or '1'}~{suite(Path('/etc/os-release').read_text())}",
        architecture=subprocess.run(
            ["/usr/bin/dpkg", "--print-architecture"], capture_output=True, text=True, check=True
        ).stdout.strip(),
        python=PYTHON,
        epoch_s=epoch_s,
        store_revision=store_revision((TOP / "daemon/store/engine.py").read_text()),
    )
    archives = []
    for package in packages:
        role = "spank" if package.role.startswith("spank") else package.role
        paths = sorted(path for path, whose in files.items() if whose == role)
        paths += others.copyright_of(package)
        words = {"@STORE_REVISION@": build.store_revision, "@VERSION@": build.version, "@SLURM@": slurm or ""}
        scripts = maintainer_scripts(package, role, words)
        archives.append(make_archive(Contents(package, root, paths, scripts), build, work, out))
        sys.stdout.write(f"{archives[-1]}\n")
    write_index(archives, out)


def _locks(wanted: set[str], environ: Mapping[str, str]) -> list[str]:
    locks = ["requirements-agent.lock", "requirements-controller.lock"]
    if "postgresql" in wanted and environ.get("STORE") == "postgresql":
        locks.append("requirements-postgresql.lock")
    return locks


def _version() -> str:
    version: str = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return version


def suite(os_release: str) -> str:
    """Short name of the distribution that this is, such as ``deb13``: later ones sort later."""
    pairs = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    words = {name: value.strip('"') for name, value in pairs.items()}
    name = {"debian": "deb"}.get(words.get("ID", ""), words.get("ID", "linux"))
    number = words.get("VERSION_ID") or words.get("VERSION_CODENAME", "")
    return re.sub(r"[^A-Za-z0-9.+]", "", f"{name}{number}")


def store_revision(engine_py: str) -> str:
    """Newest revision of the store that this version knows.

    Raises:
        SystemExit: the file does not say it.
    """
    found = re.search(r'^SCHEMA_VERSION = "(\d{4})"$', engine_py, re.M)
    if found is None:
        raise SystemExit("daemon/store/engine.py has no SCHEMA_VERSION")
    return found[1]


def maintainer_scripts(package: DebianPackage, role: str, words: Mapping[str, str]) -> dict[str, str]:
    """Text of each script that the package has, with what all have in common before it."""
    common = (HERE / "scripts" / "lib.sh").read_text("utf-8")
    texts = {}
    for name in SCRIPTS:
        own = HERE / "scripts" / f"{role}.{name}"
        if own.exists():
            text = own.read_text("utf-8")
            for word, value in words.items():
                text = text.replace(word, value)
            texts[name] = f"#!/bin/sh\nself={package.name}\n{common}{text}"
    return texts


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), os.environ)

"""Debian archives from files below a root, and a list of them that apt reads: the same bytes from the same files."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from install.deb.contents import DebianPackage
from install.deb.elf_needs import relations

MAINTAINER = "slurm-soda <slurm-soda@localhost>"
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


@dataclass(frozen=True, slots=True)
class Build:
    """What all archives of one build have in common."""

    version: str
    """Debian's: ``0.1.0-1~deb13``."""
    architecture: str
    python: str
    """Relation to the Python that the environment was made for."""
    epoch_s: int
    """Date of every file that is newer, as SOURCE_DATE_EPOCH."""
    store_revision: str
    """What this version's sodad makes of the store."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into one archive."""

    package: DebianPackage
    root: Path
    paths: Sequence[str]
    """Files and links, below ``root``."""
    scripts: Mapping[str, str]
    """Maintainer scripts by name."""


def make_archive(contents: Contents, build: Build, work: Path, out: Path) -> Path:
    """The archive of one package in the folder ``out``; ``work`` is for what it is made of.

    Raises:
        SystemExit: something that it is linked with belongs to no package.
        subprocess.CalledProcessError: dpkg-deb fails, and has said why.
    """
    package, root, paths = contents.package, contents.root, contents.paths
    stage = work / package.name
    for path in paths:
        target = stage / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / path).is_symlink():
            target.symlink_to((root / path).readlink())
        else:
            shutil.copy2(root / path, target)
    files = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    about = stage / "DEBIAN"
    about.mkdir(parents=True)
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(stage)}"
        for path in files
    ]
    (about / "md5sums").write_text("".join(f"{line}\n" for line in sums))
    if package.conffiles:
        (about / "conffiles").write_text("".join(f"/{path}\n" for path in package.conffiles))
    libraries = relations((root / path for path in paths), root.rglob("*.so*"))
    size_kib = sum(-(-path.stat().st_size // 1024) for path in files)
    (about / "control").write_text(control(package, build, libraries, size_kib))
    for name, text in contents.scripts.items():
        (about / name).write_text(text)
        (about / name).chmod(0o755)
    for folder in (stage, *(path for path in stage.rglob("*") if path.is_dir() and not path.is_symlink())):
        folder.chmod(0o755)
    archive = out / f"{package.name}_{build.version}_{build.architecture}.deb"
    argv: list[str | Path] = ["/usr/bin/dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", stage, archive]
    subprocess.run(
        argv, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": str(build.epoch_s)}
    )
    shutil.rmtree(stage)
    return archive


def control(package: DebianPackage, build: Build, libraries: Sequence[str], size_kib: int) -> str:
    """Text of the control file."""

    def filled(lines: Iterable[str]) -> str:
        words = {"{python}": build.python, "{libraries}": ", ".join(libraries)}
        texts = [words.get(line, line).replace("{version}", build.version) for line in lines]
        return ", ".join(text for text in texts if text)

    fields = {
        "Package": package.name,
        "Version": build.version,
        "Architecture": build.architecture,
        "Maintainer": MAINTAINER,
        "Installed-Size": str(size_kib),
        "Section": "admin",
        "Priority": "optional",
        "Depends": filled(package.depends),
        "Recommends": filled(package.recommends),
        "Suggests": filled(package.suggests),
        "Provides": filled(package.provides),
        "Conflicts": filled(package.replaces),
        "Replaces": filled(package.replaces),
        "Slurm-Soda-Store": build.store_revision if package.role == "controller" else "",
    }
    lines = [f"{name}: {value}\n" for name, value in fields.items() if value]
    text = "".join(f" {line}\n" for line in package.text.splitlines())
    return f"{''.join(lines)}Description: {package.summary}\n{text}"


def write_index(archives: Iterable[Path], folder: Path) -> None:
    """``Packages`` and ``Packages.gz``, by which apt takes the folder for a source of packages."""
    entries = []
    for archive in sorted(archives):
        about = subprocess.run(["/usr/bin/dpkg-deb", "-f", archive], capture_output=True, text=True, check=True).stdout
        content = archive.read_bytes()
        entries.append(
            f"{about}Filename: ./{archive.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    text = "\n".join(entries).encode()
    (folder / "Packages").write_bytes(text)
    (folder / "Packages.gz").write_bytes(gzip.compress(text, mtime=0))

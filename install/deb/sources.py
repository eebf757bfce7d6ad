"""Our wheel and sdist from a copy of the sources, and a folder with what the locks name."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_FILES = ("pyproject.toml", "README.md", "LICENSE")
_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


@dataclass(slots=True)
class Sources:
    """What a build starts from, below the folder ``work``."""

    top: Path
    work: Path
    epoch_s: int
    environ: Mapping[str, str]
    source: Path = field(init=False)
    """A copy of the sources, links followed: root must not leave files of his in a checkout."""
    _tools: Path | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.source = self.work / "source"
        self.source.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(self.top / "src", self.source / "src", ignore=ignored)
        for name in _FILES:
            shutil.copyfile(self.top / name, self.source / name)
        for path in self.source.rglob("*"):
            os.utime(path, (self.epoch_s, self.epoch_s))

    def packages(self, locks: Sequence[str]) -> Path:
        """A folder with what the locks name; one that is in PACKAGES_STORE already is taken as it is."""
        store = Path(self.environ.get("PACKAGES_STORE") or self.work)
        argv: list[str | Path] = [self.top / "install/packages.sh", sys.executable, store, *locks]
        environ = self._environ() | {"TOOLS": str(self._tools_folder())}
        done = subprocess.run(argv, cwd=self.top, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        return Path(done.stdout.strip())

    def wheel(self, out: Path) -> Path:
        """Our own wheel, whole."""
        self._pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", out, self.source)
        (made,) = out.glob("*.whl")
        return made

    def sdist(self, out: Path) -> Path:
        """Our sdist, with sorted names and the build's date: the same bytes from the same sources."""
        argv: list[str | Path] = [self._tools_folder() / "bin/python", "-c", _SDIST, self.work]
        subprocess.run(argv, cwd=self.source, env=self._environ(), stdout=subprocess.DEVNULL, check=True)
        (made,) = self.work.glob("*.tar.gz")
        packed = io.BytesIO()
        with tarfile.open(made) as source, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target:
            for member in sorted(source.getmembers(), key=lambda one: one.name):
                member.mtime, member.uid, member.gid, member.uname, member.gname = self.epoch_s, 0, 0, "", ""
                member.pax_headers = {}
                target.addfile(member, source.extractfile(member) if member.isfile() else None)
        placed = out / made.name
        placed.write_bytes(gzip.compress(packed.getvalue(), mtime=self.epoch_s))
        return placed

    def _environ(self) -> dict[str, str]:
        return {**self.environ, "SOURCE_DATE_EPOCH": str(self.epoch_s), "TMPDIR": str(self.work)}

    def _tools_folder(self) -> Path:
        """What builds our wheel, pip and setuptools, in an environment of their own, as install/python.sh has them."""
        if self._tools is None:
            given = self.environ.get("TOOLS")
            self._tools = Path(given) if given else self.work / "tools"
            if not (self._tools / "bin/pip").exists():
                subprocess.run([sys.executable, "-m", "venv", self._tools], check=True)
            flags = self.environ.get("PIP_FLAGS", "").split()
            self._pip("install", *flags, "--no-deps", "-r", self.top / "requirements-build.lock")
        return self._tools

    def _pip(self, *words: str | Path) -> None:
        argv = [self._tools_folder() / "bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
        subprocess.run(argv, env=self._environ(), stdout=sys.stderr, check=True)

"""Which packages of Debian the compiled files of a package need: what they are linked with, and how new a C library."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_ELF = b"\x7fELF"


def compiled(paths: Iterable[Path]) -> list[Path]:
    """Those that the linker made."""
    found = []
    for path in paths:
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == _ELF:
                    found.append(path)
    return found


def relations(paths: Iterable[Path], beside: Iterable[Path]) -> list[str]:
    """Relations to the packages of what ``paths`` are linked with, unless it lies among ``beside``, as in most wheels.

    Raises:
        SystemExit: a library is neither beside them nor of a package that is installed here.
    """
    own = {path.name for path in beside}
    libraries: set[str] = set()
    newest = (0, 0)
    for path in compiled(paths):
        said = subprocess.run(
            ["/usr/bin/readelf", "-d", "-V", "-W", path], capture_output=True, text=True, check=True
        ).stdout
        libraries |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
        newest = max([newest, *((int(one), int(two)) for one, two in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", said))])
    packages = {_package_of(library) for library in libraries - own}
    if newest > (0, 0):
        packages.discard("libc6")
        packages.add(f"libc6 (>= {newest[0]}.{newest[1]})")
    return sorted(packages)


@cache
def _package_of(library: str) -> str:
    cached = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    places = [Path(path) for path in re.findall(rf"^\s*{re.escape(library)} .*=> (\S+)$", cached, re.M)]
    for place in [*places, *(path.resolve() for path in places)]:
        for spelled in (place, Path("/usr") / place.relative_to("/"), Path("/") / str(place).removeprefix("/usr/")):
            done = subprocess.run(["/usr/bin/dpkg", "-S", spelled], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout.partition(":")[0]
    raise SystemExit(
        f"{library} is of no package that is installed here: install it, or build on a machine that has it"
    )

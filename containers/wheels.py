"""Python dependencies for the containers, fetched outside: they need neither a proxy's settings nor a CA inside."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.docker_engine import ReportProgress


@dataclass(frozen=True, slots=True)
class ContainerPython:
    """For what wheels are chosen: the Python inside the containers, which need not be this machine's."""

    version: str
    """Such as ``3.13``."""
    architecture: str
    """The Docker engine's: ``x86_64``, ``aarch64``."""


def lock_for_containers(lock: str, python: ContainerPython) -> str:
    """The lines of ``lock`` that hold inside the containers, each once, their markers evaluated and removed.

    pip evaluates markers for the Python that runs it, which need not be the containers' one.
    """
    environment = {
        "python_version": python.version,
        "python_full_version": f"{python.version}.0",
        "implementation_name": "cpython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": python.architecture,
        "platform_python_implementation": "CPython",
    }
    kept = []
    for requirement in _logical_lines(lock):
        wanted, *rest = requirement.split(" --hash=")
        name, _, marker = wanted.partition(";")
        if not marker.strip() or Marker(marker.strip()).evaluate(environment):
            kept.append(" --hash=".join([name.strip(), *(part.strip() for part in rest)]))
    return "".join(f"{line}\n" for line in dict.fromkeys(kept))


def _logical_lines(lock: str) -> Iterator[str]:
    """Requirements with their hashes, a backslash at the end of a line joined, comments dropped."""
    lines = (line.strip() for line in lock.splitlines() if not line.lstrip().startswith("#"))
    joined = "\n".join(lines).replace("\\\n", " ")
    yield from (" ".join(line.split()) for line in joined.splitlines() if line.strip())


def ensure_wheels(lock: str, cache: Path, python: ContainerPython, say: ReportProgress) -> Path:
    """Directory with a wheel for every line of ``lock`` (see :func:`lock_for_containers`).

    Raises:
        ClusterError: pip could not fetch them.
    """
    key = hashlib.sha256(f"{python.version} {python.architecture}\n{lock}".encode()).hexdigest()[:16]
    wheels = cache / key
    if wheels.is_dir():
        return wheels
    say("fetching the Python dependencies")
    partial = cache / f"{key}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    pins = cache / f"{key}.lock"
    pins.write_text(lock)
    _download(python, partial, ("--require-hashes", "--no-deps", "-r", str(pins)))
    partial.rename(wheels)
    return wheels


def _download(python: ContainerPython, to: Path, what: tuple[str, ...]) -> None:
    # glibc of trixie is 2.41: every manylinux tag below is fine there and in later suites.
    platforms = [f"--platform=manylinux_2_{minor}_{python.architecture}" for minor in (39, 35, 34, 31, 28, 27, 24, 17)]
    platforms += [f"--platform=manylinux2014_{python.architecture}"]
    argv = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"),
        *("--python-version", python.version, "--implementation", "cp", *platforms, "--dest", str(to), *what),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise ClusterError(f"the Python dependencies could not be fetched: {' '.join(said)[:300]}; is the network up?")

"""The images, one on top of the other: Debian, Slurm, Python's dependencies, slurm-soda.

Each tag is a hash of what goes in and of the tag below, so an image is built exactly when its inputs change.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from slurm_soda.containers.baseimage import ensure_base, has_image
from slurm_soda.containers.engine import Say
from slurm_soda.containers.spec import ClusterError
from slurm_soda.containers.wheels import ensure_wheels, lock_inside

IMAGE = Path(__file__).parent / "image"
_SLURM_FILES = ("mariadb.cnf", "daemonctl", "init-accounting", "prepare-cgroup", "start-controller", "start-node")
_SOURCE_FOLDERS = (
    *("agent", "containers", "daemon", "demo", "emulation", "epilog"),
    *("policies", "prolog", "slurm_ext", "sodactl", "wire"),
)
_SOURCE_FILES = ("pyproject.toml", "README.md")
_LEFT_OUT_SUFFIXES = (".pyc", ".o", ".so")
_LEFT_OUT_FOLDERS = frozenset({"__pycache__", "build"})
_TAIL_LINES = 5


def checkout() -> Path:
    """Top of the source tree.

    Raises:
        ClusterError: slurm-soda was installed without its sources, which the images are made of.
    """
    top = Path(__file__).resolve().parents[1]
    if not (top / "pyproject.toml").is_file() or not (top / "emulation").is_dir():
        raise ClusterError("clusters in containers need slurm-soda's sources; run this from a git checkout")
    return top


def ensure_images(client: docker.DockerClient, say: Say, base: str | None = None) -> str:
    """Tag of an image with this checkout's slurm-soda; builds what is not there yet.

    ``base`` names an image of Debian trixie to start from, instead of the one that is found or made.

    Raises:
        ClusterError: a step failed; the text has the end of what it said.
    """
    top = checkout()
    with _one_builder(top / "build"):
        below = base or ensure_base(client, say)
        slurm = _ensure(client, say, "slurm", below, {name: _read(IMAGE / name) for name in _SLURM_FILES})
        python = _ensure_python(client, say, slurm, top)
        return _ensure(client, say, "product", python, _sources(top))


def _ensure_python(client: docker.DockerClient, say: Say, below: str, top: Path) -> str:
    """The layer with the dependencies; its wheels are fetched only when it must be built."""
    architecture = _architecture(client)
    lock = lock_inside((top / "requirements.lock").read_text(), architecture)
    pins = {"requirements.lock": (lock.encode(), 0o644)}
    tag = _tag("python", below, pins)
    if not has_image(client, tag):
        wheels = ensure_wheels(lock, top / "build" / "wheels", architecture, say)
        _build(
            client, say, "python", below, tag, pins | {f"wheels/{w.name}": _read(w) for w in sorted(wheels.iterdir())}
        )
    return tag


@contextmanager
def _one_builder(build: Path) -> Iterator[None]:
    """Two commands at once build an image once: the second waits for the first."""
    build.mkdir(exist_ok=True)
    with (build / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


Files = Mapping[str, tuple[bytes, int]]
"""Content and permission bits by path inside the build context."""


def _read(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644


def _sources(top: Path) -> Files:
    files = {f"source/{name}": _read(top / name) for name in _SOURCE_FILES}
    for folder in _SOURCE_FOLDERS:
        for path in sorted((top / folder).rglob("*")):
            inside = path.relative_to(top)
            if path.is_file() and path.suffix not in _LEFT_OUT_SUFFIXES and not _LEFT_OUT_FOLDERS.intersection(inside.parts):
                files[f"source/{inside}"] = _read(path)
    return files


def _ensure(client: docker.DockerClient, say: Say, layer: str, below: str, files: Files) -> str:
    tag = _tag(layer, below, files)
    if not has_image(client, tag):
        _build(client, say, layer, below, tag, files)
    return tag


def _tag(layer: str, below: str, files: Files) -> str:
    digest = hashlib.sha256(f"{below}\n".encode())
    for path, (content, mode) in sorted({**files, "Dockerfile": _read(IMAGE / f"Dockerfile.{layer}")}.items()):
        digest.update(f"{path} {mode:o} {len(content)}\n".encode())
        digest.update(content)
    return f"slurm-soda/{layer}:{digest.hexdigest()[:16]}"


def _build(client: docker.DockerClient, say: Say, layer: str, below: str, tag: str, files: Files) -> None:
    say(f"building the image {tag}")
    context = _tar({**files, "Dockerfile": _read(IMAGE / f"Dockerfile.{layer}")})
    api: Any = client.api
    said: list[str] = []
    for event in api.build(
        fileobj=context, custom_context=True, tag=tag, buildargs={"BASE": below}, rm=True, forcerm=True, decode=True
    ):
        if "error" in event:
            tail = " | ".join(said[-_TAIL_LINES:])
            raise ClusterError(f"building the image {tag} failed: {event['error'].strip()}; it said: {tail}")
        said += [line for line in event.get("stream", "").splitlines() if line.strip()]


def _tar(files: Files) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def _architecture(client: docker.DockerClient) -> str:
    api: Any = client.api
    arch = str(api.version()["Arch"])
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)

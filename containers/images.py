"""The images, one on top of the other: Debian, Slurm, Python's dependencies, slurm-soda.

Each tag is a hash of what goes in and of the tag below, so an image is built exactly when its inputs change.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from slurm_soda.containers.base_image import ensure_base, has_image
from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.docker_engine import ReportProgress, describe_refusal
from slurm_soda.containers.slurm_releases import SlurmRelease
from slurm_soda.containers.wheels import ContainerPython, ensure_wheels, lock_for_containers
from slurm_soda.wire.lock_file import open_lock_file

IMAGE = Path(__file__).parent / "image"
_SLURM_FILES = ("mariadb.cnf", "daemonctl", "init-accounting")
_SYSTEMD_FILES = ("daemonctl-systemd", "start-systemd")
_VIRTUAL_FILES = ("make-initramfs", "guest-init", "start-machine", "ssh_config")
_START_SCRIPTS = ("prepare-cgroup", "start-controller", "start-node")
_SOURCE_FOLDERS = (
    *("agent", "containers", "daemon", "demo", "emulation", "epilog", "examples", "install", "learning"),
    *("policies", "prolog", "services", "simulator", "slurm_ext", "sodactl", "wire"),
)
_LOCKS = ("requirements-controller.lock", "requirements-agent.lock")
"""One image is controller and node, as a site of one machine."""
_BUILD_LOCK = "requirements-build.lock"
_SERVING_LOCK = "requirements-serving.lock"
"""What the example of an inference server needs, in an environment of the users' own."""
_PACKAGES_SCRIPTS = ("install/packages.sh", "install/roles.py")
"""They make the folder of dependencies that `make install` finds later, if the locks are the same."""
_SOURCE_FILES = ("Makefile", "pyproject.toml", "README.md", "LICENSE", *_LOCKS, _BUILD_LOCK)
_LEFT_OUT_SUFFIXES = (".pyc", ".o", ".so")
_LEFT_OUT_FOLDERS = frozenset({"__pycache__", "build"})
_TAIL_LINES = 5
_STEP_CHARS = 100
_IMAGES_KEPT = {"bare": 2, "systemd": 2, "product": 10, "serving": 2, "virtual": 2, "python": 3, "slurm": 3}
"""Newest images of each layer that stay: a change of branch should not rebuild what was there a moment ago."""


ImageFiles = Mapping[str, tuple[bytes, int]]
"""Content and mode by path inside the build context; the content of a symbolic link is its target."""


def find_checkout() -> Path:
    """Top of the source tree.

    Raises:
        ClusterError: slurm-soda was installed without its sources, which the images are made of.
    """
    top = Path(__file__).resolve().parents[1]
    if not (top / "pyproject.toml").is_file() or not (top / "emulation").is_dir():
        raise ClusterError("clusters in containers need slurm-soda's sources; run this from a git checkout")
    return top


def ensure_images(
    client: docker.DockerClient,
    say: ReportProgress,
    release: SlurmRelease,
    base: str | None = None,
    *,
    systemd: bool = False,
    serving: bool = False,
    virtual: bool = False,
) -> str:
    """Tag of an image with this checkout's slurm-soda beside a release of Slurm; builds what is not there yet.

    ``base`` names an image of the release's suite of Debian to start from, instead of the one that is found or made. With
    ``systemd`` the image has that too, and the installed units; with ``serving`` HAProxy, and ONNX Runtime for the users;
    with ``virtual`` QEMU and a kernel of Debian's.

    Raises:
        ClusterError: a step failed; the text has the end of what it said.
    """
    top = find_checkout()
    with _build_lock(top / "build"):
        packages = _dependencies(client, say, top, release, base)
        if serving:
            packages = _serving(client, say, packages, top, release)
        if virtual:
            files = {name: _read(IMAGE / name) for name in _VIRTUAL_FILES}
            packages = _build_missing(client, say, [ImageLayer("virtual", packages, files)])
        layers = [ImageLayer("product", packages, sources(top))]
        if systemd:
            layers.append(ImageLayer("systemd", layers[0].tag, {name: _read(IMAGE / name) for name in _SYSTEMD_FILES}))
        return _build_missing(client, say, layers)


def _build_missing(client: docker.DockerClient, say: ReportProgress, layers: Sequence[ImageLayer]) -> str:
    """Tag of the last of some layers, each on the one before; older images go once one was built."""
    for layer in layers:
        if not has_image(client, layer.tag):
            _build(client, say, layer, {})
            for name, kept in _IMAGES_KEPT.items():
                _remove_old_images(client, name, kept)
    return layers[-1].tag


def ensure_bare_image(
    client: docker.DockerClient, say: ReportProgress, release: SlurmRelease, base: str | None = None
) -> str:
    """Tag of an image of a site before slurm-soda: Slurm under systemd, and emulated GPUs; built if it is not there.

    Raises:
        ClusterError: as :func:`ensure_images`.
    """
    top = find_checkout()
    with _build_lock(top / "build"):
        slurm = slurm_layer(release, base or ensure_base(client, say, release))
        emulation = {path: file for path, file in sources(top).items() if path.startswith("source/emulation/")}
        scripts = {name: _read(IMAGE / name) for name in (*_SYSTEMD_FILES, *_START_SCRIPTS)}
        return _build_missing(client, say, (slurm, ImageLayer("bare", slurm.tag, {**scripts, **emulation})))


def ensure_dependencies_image(
    client: docker.DockerClient, say: ReportProgress, release: SlurmRelease, base: str | None = None
) -> str:
    """Tag of an image with a release of Slurm, its headers and what slurm-soda's locks name, but no slurm-soda.

    Raises:
        ClusterError: as :func:`ensure_images`.
    """
    top = find_checkout()
    with _build_lock(top / "build"):
        return _dependencies(client, say, top, release, base)


def _dependencies(
    client: docker.DockerClient, say: ReportProgress, top: Path, release: SlurmRelease, base: str | None
) -> str:
    slurm = slurm_layer(release, base or ensure_base(client, say, release))
    if not has_image(client, slurm.tag):
        _build(client, say, slurm, {})
    return _python(client, say, slurm.tag, top, release)


def slurm_layer(release: SlurmRelease, below: str) -> ImageLayer:
    """The layer with Debian's Slurm. A suite that moved on to another release than this one fails to build."""
    files = {name: _read(IMAGE / name) for name in _SLURM_FILES}
    return ImageLayer("slurm", below, {**files, "slurm-version": (f"{release.version}\n".encode(), 0o644)})


def _python(client: docker.DockerClient, say: ReportProgress, below: str, top: Path, release: SlurmRelease) -> str:
    """The layer with the dependencies; its wheels are fetched only when it must be built."""
    python = ContainerPython(release.python, _architecture(client))
    lock = lock_for_containers("".join((top / name).read_text() for name in _LOCKS), python)
    build = lock_for_containers((top / _BUILD_LOCK).read_text(), python)
    inputs = {f"source/{name}": _read(top / name) for name in (*_LOCKS, *_PACKAGES_SCRIPTS)}
    layer = ImageLayer("python", below, {**inputs, f"source/{_BUILD_LOCK}": (build.encode(), 0o644)})
    if not has_image(client, layer.tag):
        wheels = ensure_wheels(lock + build, top / "build" / "wheels", python, say)
        _build(client, say, layer, {f"wheels/{wheel.name}": _read(wheel) for wheel in sorted(wheels.iterdir())})
    return layer.tag


def _serving(client: docker.DockerClient, say: ReportProgress, below: str, top: Path, release: SlurmRelease) -> str:
    """The layer with what inference services need; its wheels too are fetched only when it must be built."""
    python = ContainerPython(release.python, _architecture(client))
    lock = lock_for_containers((top / _SERVING_LOCK).read_text(), python)
    layer = ImageLayer("serving", below, {"serving.lock": (lock.encode(), 0o644)})
    if not has_image(client, layer.tag):
        wheels = ensure_wheels(lock, top / "build" / "wheels", python, say)
        _build(client, say, layer, {f"wheels/{wheel.name}": _read(wheel) for wheel in sorted(wheels.iterdir())})
    return layer.tag


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """One image: its Dockerfile, the image below, and the files that it is made of."""

    name: str
    below: str
    """Tag of the image that it starts from."""
    inputs: ImageFiles

    @property
    def files(self) -> ImageFiles:
        """The inputs and the Dockerfile."""
        return {**self.inputs, "Dockerfile": _read(IMAGE / f"Dockerfile.{self.name}")}

    @property
    def tag(self) -> str:
        """Name with a hash of everything that goes in."""
        digest = hashlib.sha256(f"{self.below}\n".encode())
        for path, (content, mode) in sorted(self.files.items()):
            digest.update(f"{path} {mode:o} {len(content)}\n".encode())
            digest.update(content)
        return f"slurm-soda/{self.name}:{digest.hexdigest()[:16]}"


@contextmanager
def _build_lock(build: Path) -> Iterator[None]:
    """Two commands at once build an image once: the second waits for the first.

    Raises:
        ClusterError: the directory belongs to another user, root after a ``sudo sodactl cluster up``.
    """
    try:
        build.mkdir(exist_ok=True)
        lock = os.fdopen(open_lock_file(build / "images.lock"), "w")
    except PermissionError as error:
        raise ClusterError(f"{error.filename} belongs to another user; run: sudo chown -R $USER {build}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644


def sources(top: Path) -> ImageFiles:
    """What the product is installed from, out of a checkout: as it is there, the links of the package's root too."""
    files = {f"source/{name}": _read(top / name) for name in _SOURCE_FILES}
    for folder in _SOURCE_FOLDERS:
        for path in sorted((top / folder).rglob("*")):
            inside = path.relative_to(top)
            if (
                path.is_file()
                and path.suffix not in _LEFT_OUT_SUFFIXES
                and not _LEFT_OUT_FOLDERS.intersection(inside.parts)
            ):
                files[f"source/{inside}"] = _read(path)
    for link in sorted((top / "src" / "slurm_soda").iterdir()):
        if link.name in _LEFT_OUT_FOLDERS:
            continue
        target = link.readlink() if link.is_symlink() else None
        files[f"source/{link.relative_to(top)}"] = (
            (str(target).encode(), stat.S_IFLNK | 0o777) if target else _read(link)
        )
    return files


def _build(client: docker.DockerClient, say: ReportProgress, layer: ImageLayer, more: ImageFiles) -> None:
    """Builds a layer. ``more`` are files that its inputs determine, and that therefore are not in its tag."""
    say(f"building the image {layer.tag}")
    said: list[str] = []
    try:
        for line in _steps(client, layer, more):
            if line.startswith("Step "):
                say(f"  {' '.join(line.split())[:_STEP_CHARS]}")
            said.append(line)
    except docker.errors.DockerException as error:
        tail = " | ".join(said[-_TAIL_LINES:])
        raise ClusterError(
            f"{describe_refusal(error, f'build the image {layer.tag}')}; the build said: {tail}"
        ) from error


def _steps(client: docker.DockerClient, layer: ImageLayer, more: ImageFiles) -> Iterator[str]:
    """Runs the build; what it says, line by line."""
    api: Any = client.api
    for event in api.build(
        fileobj=_tar({**layer.files, **more}),
        custom_context=True,
        tag=layer.tag,
        buildargs={"BASE": layer.below},
        rm=True,
        forcerm=True,
        decode=True,
    ):
        if "error" in event:
            raise docker.errors.DockerException(event["error"].strip())
        yield from (line for line in event.get("stream", "").splitlines() if line.strip())


def _remove_old_images(client: docker.DockerClient, layer: str, kept: int) -> None:
    """Removes the older images of a layer; those in use stay."""
    found: list[Any] = client.images.list(f"slurm-soda/{layer}")
    for image in sorted(found, key=lambda one: str(one.attrs["Created"]), reverse=True)[kept:]:
        for tag in image.tags:
            with suppress(docker.errors.APIError):
                client.images.remove(tag)


def _tar(files: ImageFiles) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (data, mode) in sorted(files.items()):
            content, entry = data, tarfile.TarInfo(path)
            entry.mode = stat.S_IMODE(mode)
            if stat.S_ISLNK(mode):
                entry.type, entry.linkname, content = tarfile.SYMTYPE, content.decode(), b""
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def _architecture(client: docker.DockerClient) -> str:
    api: Any = client.api
    arch = str(api.version()["Arch"])
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)

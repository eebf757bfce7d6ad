"""Containers in which packages of Debian are built and installed, without any network."""

from __future__ import annotations

import io
import secrets
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from slurm_soda.containers.base_image import ensure_base
from slurm_soda.containers.cluster_spec import LABEL
from slurm_soda.containers.container_commands import ContainerCommandResult, run_in_container
from slurm_soda.containers.docker_engine import connect_docker
from slurm_soda.containers.docker_resources import remove_cluster
from slurm_soda.containers.images import ImageFiles, ensure_dependencies_image, ensure_images, slurm_layer, sources
from slurm_soda.containers.slurm_releases import find_release

TOP = Path(__file__).parents[1]
MAKE = (
    "make -s -C /tmp/source packages PACKAGES_STORE=/opt/slurm-soda/lib/slurm-soda TOOLS=/opt/slurm-soda-tools "
    "PIP_FLAGS=--no-index SOURCE_DATE_EPOCH=1795850310"
)
APT = (
    "DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends "
    "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
)
Archives = Mapping[str, bytes]
"""What a build has made, by file name."""


@dataclass(frozen=True)
class Box:
    """One container that does nothing by itself."""

    client: docker.DockerClient
    name: str

    def run(self, script: str, timeout_s: float = 600, **environment: str) -> ContainerCommandResult:
        """A script for sh, as root."""
        argv = ("sh", "-euc", script)
        return run_in_container(self.client, self.name, argv, timeout_s=timeout_s, environment=environment)

    def said(self, script: str, timeout_s: float = 600) -> str:
        """What a script says that ends well."""
        return self.run(script, timeout_s).check().stdout

    def put(self, files: ImageFiles, folder: str) -> None:
        """Files with their modes, links too, below a folder that is there."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, (content, mode) in files.items():
                entry = tarfile.TarInfo(path)
                entry.mode, entry.mtime = stat.S_IMODE(mode), 1_795_850_310
                if stat.S_ISLNK(mode):
                    entry.type, entry.linkname = tarfile.SYMTYPE, content.decode()
                    tar.addfile(entry)
                else:
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
        api: Any = self.client.api
        api.put_archive(self.name, folder, buffer.getvalue())

    def take(self, folder: str) -> Archives:
        """All files of a folder, by name."""
        api: Any = self.client.api
        stream, _ = api.get_archive(self.name, folder)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            files = [member for member in tar.getmembers() if member.isfile()]
            return {Path(member.name).name: tar.extractfile(member).read() for member in files}  # type: ignore[union-attr]

    def install(self, archives: Archives, *roles: str) -> str:
        """By apt, from a folder; what it said. Without any role all of them."""
        chosen = [name for name in archives if name.endswith(".deb") and (not roles or role_of(name) in roles)]
        self.said("rm -rf /var/tmp/debs && mkdir /var/tmp/debs")
        self.put({name: (archives[name], 0o644) for name in chosen}, "/var/tmp/debs")
        done = self.run(f"{APT} install --allow-downgrades {' '.join(f'/var/tmp/debs/{name}' for name in chosen)} 2>&1")
        self.said("rm -rf /var/tmp/debs")
        assert done.status == 0, done.stdout[-3000:]
        return done.stdout


def role_of(archive: str) -> str:
    """``agent`` of ``slurm-soda-agent_0.1.0-1~deb13_amd64.deb``, and ``spank`` of any plugin's."""
    role = archive.partition("_")[0].removeprefix("slurm-soda-")
    return "spank" if role.startswith("spank") else role


@dataclass(frozen=True)
class PackageLab:
    """Makes such containers on one release of Slurm, and packages in them."""

    client: docker.DockerClient
    slurm: str
    name: str

    @contextmanager
    def box(self, kind: str) -> Iterator[Box]:
        """A container with Slurm (``slurm``), with what packages are built of too (``build``), or with slurm-soda by make
        install (``product``).
        """
        release = find_release(self.slurm)
        if kind == "product":
            image = ensure_images(self.client, print, release)
        else:
            image = ensure_dependencies_image(self.client, print, release)
        if kind == "slurm":
            image = slurm_layer(release, ensure_base(self.client, print, release)).tag
        made = self.client.containers.run(
            image,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            network_mode="none",
            name=f"{self.name}-{kind}-{secrets.token_hex(2)}",
            labels={LABEL: self.name},
        )
        try:
            yield Box(self.client, str(made.name))
        finally:
            made.remove(force=True)

    def build(self, words: str = "", changes: Mapping[str, bytes] | None = None) -> Archives:
        """Build this checkout, with some files changed, by `make packages` in a container of its own."""
        files = {path.removeprefix("source/"): file for path, file in sources(TOP).items()}
        for path in [*TOP.glob("docs/**/*.md"), *TOP.glob("requirements*.lock"), TOP / "CHANGELOG.md"]:
            files[str(path.relative_to(TOP))] = (path.read_bytes(), 0o644)
        files |= {path: (content, 0o644) for path, content in (changes or {}).items()}
        with self.box("build") as box:
            box.said("mkdir /tmp/source")
            box.put(files, "/tmp/source")
            box.said(f"{MAKE} {words}", timeout_s=1500)
            return box.take("/tmp/source/build/packages")


def make_lab(slurm: str) -> PackageLab:
    """One for a module of tests; :func:`clean` ends it."""
    return PackageLab(connect_docker(print), slurm, f"packages-{secrets.token_hex(3)}")


def clean(lab: PackageLab) -> None:
    """Remove whatever is left of it."""
    remove_cluster(lab.client, lab.name)

"""The Debian image under everything: from a registry if one answers, else made from Debian's packages."""

from __future__ import annotations

import queue
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker

from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.docker_engine import DockerMachine, ReportProgress, apt_install
from slurm_soda.containers.slurm_releases import SlurmRelease

_REGISTRY_ANSWERS_WITHIN_S = 10.0
_PULL_WITHIN_S = 300.0


def ensure_base(
    client: docker.DockerClient, say: ReportProgress, release: SlurmRelease, machine: DockerMachine | None = None
) -> str:
    """Tag of the base image for a release of Slurm, which is got if it is not here yet.

    Raises:
        ClusterError: no registry answers, and this user cannot make the image either.
    """
    if has_image(client, release.base_image):
        return release.base_image
    machine = machine or DockerMachine()
    refused = _pull(client, say, release.registry_tag)
    if refused is None:
        client.images.get(f"debian:{release.registry_tag}").tag(release.base_image)
        return release.base_image
    say(f"no registry gave debian:{release.registry_tag} ({refused})")
    _bootstrap(client, say, machine, release)
    return release.base_image


def has_image(client: docker.DockerClient, tag: str) -> bool:
    """The engine has an image of that tag."""
    try:
        client.images.get(tag)
    except docker.errors.ImageNotFound:
        return False
    return True


def _pull(client: docker.DockerClient, say: ReportProgress, registry_tag: str) -> str | None:
    """Tries the registry; the reason in a few words if it did not work, ``None`` if it did.

    The engine itself waits minutes for a registry that swallows packets, hence the watch from a thread.
    """
    if has_image(client, f"debian:{registry_tag}"):
        return None
    say(f"asking the registry for debian:{registry_tag}")
    events: queue.Queue[str | None] = queue.Queue()

    def pull() -> None:
        api: Any = client.api
        try:
            for event in api.pull("debian", tag=registry_tag, stream=True, decode=True):
                if "error" in event:
                    raise docker.errors.APIError(event["error"])
                events.put("")
            events.put(None)
        except (docker.errors.DockerException, OSError) as error:
            events.put(str(getattr(error, "explanation", None) or error)[:120] or type(error).__name__)

    threading.Thread(target=pull, daemon=True).start()
    limit_s = _REGISTRY_ANSWERS_WITHIN_S
    while True:
        try:
            event = events.get(timeout=limit_s)
        except queue.Empty:
            return "no answer in time"
        if event is None:
            return None
        if event:
            return event
        limit_s = _PULL_WITHIN_S


def _bootstrap(client: docker.DockerClient, say: ReportProgress, machine: DockerMachine, release: SlurmRelease) -> None:
    if machine.uid != 0:
        raise ClusterError(
            f"no registry gave debian:{release.registry_tag}, and making it from Debian's packages needs root;"
            f" run once: sudo .venv/bin/sodactl cluster up --slurm {release.version}"
        )
    if not machine.has("debootstrap"):
        if not machine.is_debian():
            raise ClusterError(
                f"no registry gave debian:{release.registry_tag} and there is no debootstrap; install debootstrap"
            )
        say("installing debootstrap")
        apt_install(machine, ("debootstrap", "debian-archive-keyring"))
    say(f"making the base image from Debian's packages (debootstrap {release.suite}, about half a minute)")
    # Not under /tmp, which may be mounted nodev or be a small memory file system.
    work = Path(tempfile.mkdtemp(prefix="slurm-soda-base-", dir="/var/tmp"))
    try:
        machine.run(debootstrap_command(release.suite, work / "root"))
        _import(client, work / "root", release.base_image)
    finally:
        # An interrupted debootstrap leaves its mounts.
        for mounted in ("proc", "sys", "dev/pts"):
            with suppress(ClusterError):
                machine.run(("umount", "--lazy", str(work / "root" / mounted)))
        shutil.rmtree(work, ignore_errors=True)


def debootstrap_command(suite: str, root: Path) -> tuple[str, ...]:
    """Makes a suite's base system in a folder, from debootstrap's own mirror (the empty word).

    Every suite of today is made by the script of sid; a debootstrap that is older than the suite has no other name for it.
    """
    return ("debootstrap", "--variant=minbase", suite, str(root), "", "sid")


def _import(client: docker.DockerClient, root: Path, image: str) -> None:
    argv = ("tar", "-C", str(root), "--exclude=./var/cache/apt/archives/*.deb", "--numeric-owner", "-c", ".")
    repository, tag = image.split(":")
    api: Any = client.api
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as tar:
        api.import_image_from_stream(tar.stdout, repository=repository, tag=tag)
    if tar.returncode != 0:
        raise ClusterError(f"tar of the base image exited with status {tar.returncode}; is the disk full?")

"""The Docker engine on this machine: find it, or install and start it where that is ours to do."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker

from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.wire.lock_file import open_lock_file

ReportProgress = Callable[[str], None]
"""Takes one line of progress for a person."""

_ANSWER_WITHIN_S = 60
_API_TIMEOUT_S = 120
_MAX_OUTPUT_CHARS = 300
_DAEMON_LOG = Path("/var/log/slurm-soda-dockerd.log")
_SOCKET = Path("/var/run/docker.sock")


@dataclass(frozen=True, slots=True)
class DockerMachine:
    """The machine as :func:`connect_docker` needs it; tests hand in another one."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")
    uid: int = field(default_factory=os.geteuid)
    run: Callable[[Sequence[str]], None] = field(default_factory=lambda: _run)
    """Runs a command to its end; raises ClusterError when it fails."""
    spawn: Callable[[Sequence[str]], None] = field(default_factory=lambda: _spawn)
    """Starts a command that outlives us."""
    connect: Callable[[], docker.DockerClient] = field(default_factory=lambda: _connect)
    sleep: Callable[[float], None] = time.sleep

    def is_debian(self) -> bool:
        """Debian, Ubuntu or a relative: has apt-get and Debian's package names."""
        try:
            text = (self.root / "etc/os-release").read_text()
        except OSError:
            return False
        pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        names = f"{pairs.get('ID', '')} {pairs.get('ID_LIKE', '')}".replace('"', "").split()
        return bool({"debian", "ubuntu"} & set(names))

    def has(self, command: str) -> bool:
        """The command is installed in one of the system's own directories."""
        return any((self.root / d / command).exists() for d in ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin"))


def connect_docker(say: ReportProgress, machine: DockerMachine | None = None) -> docker.DockerClient:
    """A client of an engine that answers, installing and starting Debian's own engine if nobody else can be asked.

    Raises:
        ClusterError: no engine answers; the line says what is missing and the command that mends it.
    """
    machine = machine or DockerMachine()
    try:
        return machine.connect()
    except PermissionError as error:
        raise ClusterError(
            f"no right to use the Docker engine at {_SOCKET}; run: sudo usermod -aG docker $USER, then log in again"
        ) from error
    except OSError as error:
        refused = error
    host = machine.environment.get("DOCKER_HOST")
    if host:
        raise ClusterError(
            f"no Docker engine answers at DOCKER_HOST={host} ({refused}); start it, or: unset DOCKER_HOST"
        )
    installed = machine.has("dockerd")
    if machine.uid != 0 or not (installed or machine.is_debian()):
        raise ClusterError(_describe_missing(machine, installed))
    with _repair_lock(machine):
        try:
            return machine.connect()  # Another command mended it meanwhile.
        except OSError:
            _repair(machine, say)
        return _wait(machine)


def describe_refusal(error: docker.errors.DockerException, what: str) -> ClusterError:
    """The engine's answer to a request, in one line; ``what`` completes "the Docker engine did not …"."""
    said = " ".join(str(getattr(error, "explanation", None) or error).split())[:_MAX_OUTPUT_CHARS]
    return ClusterError(f"the Docker engine did not {what}: {said}")


@contextmanager
def _repair_lock(machine: DockerMachine) -> Iterator[None]:
    """Two commands at once install and start it once, as apt-get does not wait for another one: the second one waits."""
    folder = machine.root / "run"
    folder.mkdir(exist_ok=True)
    with os.fdopen(open_lock_file(folder / "slurm-soda-engine.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _repair(machine: DockerMachine, say: ReportProgress) -> None:
    if not machine.has("dockerd"):
        say("no Docker engine is installed: installing Debian's (apt-get install docker.io)")
        apt_install(machine, ("docker.io", "iptables"))
        try:
            machine.connect()
        except OSError:
            pass
        else:
            return  # The package's own service is up already.
    if (machine.root / "run/systemd/system").exists():
        say("starting the Docker engine (systemctl start docker)")
        machine.run(("systemctl", "start", "docker"))
    else:
        say(f"starting the Docker engine (dockerd, no systemd runs here; its log: {_DAEMON_LOG})")
        machine.spawn(("dockerd",))


def apt_install(machine: DockerMachine, packages: Sequence[str]) -> None:
    """Installs Debian packages; for root only."""
    machine.run(("apt-get", "-qq", "update"))
    machine.run(("apt-get", "-qq", "-y", "install", "--no-install-recommends", *packages))


def _describe_missing(machine: DockerMachine, installed: bool) -> str:
    if not installed and not machine.is_debian():
        return "no Docker engine is installed; install one as https://docs.docker.com/engine/install/ says"
    if not installed:
        return "no Docker engine is installed; run: sudo apt-get install docker.io && sudo usermod -aG docker $USER"
    return "the Docker engine is installed but does not answer; run: sudo systemctl start docker"


def _wait(machine: DockerMachine) -> docker.DockerClient:
    for _ in range(_ANSWER_WITHIN_S * 2):
        try:
            return machine.connect()
        except OSError:
            machine.sleep(0.5)
    raise ClusterError(
        f"the Docker engine did not answer within {_ANSWER_WITHIN_S} s; see {_DAEMON_LOG} or: docker info"
    )


def _connect() -> docker.DockerClient:
    """Client of the engine that the environment names.

    Raises:
        PermissionError: it is there but not for this user.
        ConnectionError: it does not answer.
    """
    try:
        client = docker.from_env(timeout=_API_TIMEOUT_S)
        client.ping()
    except docker.errors.DockerException as error:
        text = str(error)
        if "Permission denied" in text or "PermissionError" in text:
            raise PermissionError(text) from error
        raise ConnectionError(text) from error
    return client


def _run(argv: Sequence[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(argv, env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise ClusterError(f"{' '.join(argv)} exited with status {done.returncode}: {said}")


def _spawn(argv: Sequence[str]) -> None:
    with _DAEMON_LOG.open("ab") as log:
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

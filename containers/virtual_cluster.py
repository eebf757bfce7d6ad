"""A real Slurm on cgroup v2 whatever kernel this machine has: a cluster of two nodes in one machine that QEMU emulates.

QEMU runs in a container of the image that all clusters are made of, without KVM, with Debian's cloud kernel, and that
container's own files are the machine's disk. Inside there is no systemd and nothing of cgroup v1. ``ctl`` and ``n1`` are the
machine itself; ``n2`` has its own network, so that what n1 sends to it goes over an interface, and no agent.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import docker

from slurm_soda.containers import docker_resources
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import CONTROLLER, DEFAULT_SLURM, ClusterError, ClusterSpec
from slurm_soda.containers.container_commands import (
    ContainerCommandResult,
    ContainerFile,
    RunningContainerCommand,
    home_directory,
    put_files,
    run_in_container,
)
from slurm_soda.containers.docker_engine import ReportProgress, connect_docker
from slurm_soda.containers.images import ensure_images
from slurm_soda.containers.slurm_config import slurm_config_files
from slurm_soda.containers.slurm_releases import find_release

CORES = 4
"""Of the machine; what each node has too: unlike in containers, these cores exist."""
LINK = "link0"
"""The interface of n1 and n2 to each other."""
_MEMORY_MIB = 3072
_NODE_MEMORY_MIB = 2048
_BOOT_WITHIN_S = 900.0
_START_WITHIN_S = 600.0
_SLOWER = 5.0
"""Than in a container, everything that is waited for."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES = {
    "ctl": (),
    "n1": ("--uts=/run/nodes/n1.uts",),
    "n2": ("--uts=/run/nodes/n2.uts", "--net=/run/netns/n2", "--mount=/run/nodes/n2.mnt"),
}
_MACHINE = {"x86_64", "amd64"}


class VirtualCluster(ContainerCluster):
    """One such cluster that is up, to be used as any other. Made by :meth:`boot` only."""

    @classmethod
    def image(cls, progress: ReportProgress) -> tuple[docker.DockerClient, str]:
        """An engine, and the image with QEMU and the kernel; built if it is not there.

        Raises:
            ClusterError: it cannot be had here: no engine, no packages, or another processor than the kernel's.
        """
        client = connect_docker(progress)
        if client.info()["Architecture"] not in _MACHINE:
            raise ClusterError("the emulated machine has Debian's kernel for amd64: run this on an x86 machine")
        return client, ensure_images(client, progress, find_release(DEFAULT_SLURM), virtual=True)

    @classmethod
    def boot(cls, name: str, client: docker.DockerClient, image: str, progress: ReportProgress) -> VirtualCluster:
        """Start the machine and Slurm in it; returns when both nodes are idle. A failure leaves nothing behind.

        Raises:
            ClusterError: the machine does not start, or a daemon in it; the end of its console is told.
        """
        cluster = cls(client, ClusterSpec(name, nodes=2, gpus=4, cpus=CORES, memory_mib=_NODE_MEMORY_MIB))
        try:
            progress("making the machine's disk and booting it (a minute, on a slow machine several)")
            docker_resources.create_machine_container(client, cluster.spec, image)
            cluster._boot()
            progress("starting Slurm in it")
            cluster._start_slurm()
        except BaseException:
            cluster.down()
            raise
        return cluster

    @property
    def container(self) -> str:
        """Docker's name of the container around the machine."""
        return self.spec.container(CONTROLLER)

    def exec(
        self,
        user: str,
        argv: Sequence[str],
        *,
        input: bytes | str | None = None,  # noqa: A002 - as in the class above
        timeout_s: float | None = 300.0,
        node: str = CONTROLLER,
        environment: Mapping[str, str] | None = None,
    ) -> ContainerCommandResult:
        """Runs a command in the machine, as on ``node``, as ``user`` in their home, and waits for its end."""
        stdin = input.encode(errors="surrogateescape") if isinstance(input, str) else input
        words = machine_command(user, argv, node, timeout_s, environment or {})
        limit_s = None if timeout_s is None else timeout_s + 60
        found = run_in_container(self._client, self.container, ("ssh", "guest", words), stdin=stdin, timeout_s=limit_s)
        return ContainerCommandResult(tuple(argv), found.stdout, found.stderr, found.status)

    def run(
        self,
        user: str,
        argv: Sequence[str],
        *,
        input: bytes | None = None,  # noqa: A002 - as above
        node: str = CONTROLLER,
    ) -> RunningContainerCommand:
        """Starts a command in the machine, without a time limit."""
        words = machine_command(user, argv, node, None, {})
        return RunningContainerCommand(self._client, self.container, ("ssh", "guest", words), user="root", stdin=input)

    def copy_in(self, content: bytes, path: str, *, node: str = CONTROLLER, mode: int = 0o644, uid: int = 0) -> None:
        """Writes a file in the machine; n2 has directories of its own for the agent's things only."""
        script = 'mkdir -p "${1%/*}" && cat >"$1" && chmod "$2" "$1" && chown "$3" "$1"'
        argv = ("sh", "-c", script, "copy", path, f"{mode:o}", f"{uid}:{uid}")
        self.exec("root", argv, input=content, node=node).check()

    def copy_out(self, path: str, *, node: str = CONTROLLER) -> bytes:
        """Content of a file in the machine.

        Raises:
            ClusterError: there is no such file.
        """
        return self.exec("root", ("cat", path), node=node).check().stdout.encode(errors="surrogateescape")

    def wait_until(self, condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
        """As in a container, with more patience."""
        super().wait_until(condition, what, within_s * _SLOWER)

    def console(self) -> str:
        """What the kernel and the first process have said."""
        return run_in_container(self._client, self.container, ("cat", "/disk/console.log"), timeout_s=30).stdout

    def container_of(self, node: str) -> str:
        """Every node is in the same container.

        Raises:
            ClusterError: the cluster has no such node.
        """
        if node not in _NAMESPACES:
            raise ClusterError(f"cluster {self.spec.name} has no node {node}; it has {', '.join(_NAMESPACES)}")
        return self.container

    def _boot(self) -> None:
        files = slurm_config_files(self.spec, "v2")
        key = ContainerFile("/etc/munge/munge.key", secrets.token_bytes(128), 0o400)
        put_files(
            self._client,
            self.container,
            [key, *(ContainerFile(f"/etc/slurm/{name}", text.encode()) for name, text in files.items())],
        )
        start = ("start-machine", str(CORES), str(_MEMORY_MIB))
        reply = run_in_container(self._client, self.container, start, timeout_s=_BOOT_WITHIN_S)
        if reply.status != 0:
            self._fail(f"the machine did not start: {' '.join(reply.stderr.split())}")

    def _start_slurm(self) -> None:
        found = self.exec("root", ("prepare-cgroup",)).check().stdout.strip()
        if found != "v2":
            self._fail(f"the machine has cgroups {found!r}, not v2")
        try:
            self.exec("root", ("start-controller", CONTROLLER), timeout_s=_START_WITHIN_S).check()
            self.exec("root", ("start-node", str(self.spec.gpus), "n1"), node="n1").check()
            self.exec("root", ("install", "-d", "/var/spool/slurmd/n2"), node="n2").check()
            self.start("slurmd@n2", node="n2")
            self.wait_until(self._all_idle, "both nodes are idle", _START_WITHIN_S / _SLOWER)
        except ClusterError as error:
            self._fail(str(error))

    def _fail(self, why: str) -> NoReturn:
        tail = " | ".join(self.console().splitlines()[-8:])
        logs = {name: text.splitlines()[-4:] for name, text in self.logs(4).items() if name.startswith(CONTROLLER)}
        raise ClusterError(f"{why}; the console says: {tail}; daemons: {logs}")


def machine_command(
    user: str, argv: Sequence[str], node: str, timeout_s: float | None, environment: Mapping[str, str]
) -> str:
    """One line for the machine's shell: a command on a node, as a user in his home, ended after a time.

    Raises:
        ClusterError: there is no such user or node.
    """
    if node not in _NAMESPACES:
        raise ClusterError(f"the machine has no node {node!r}; it has {', '.join(_NAMESPACES)}")
    home = home_directory(user)
    names = {"PATH": _PATH, "HOME": home, "USER": user, "LOGNAME": user, **environment}
    enter = ("nsenter", *_NAMESPACES[node], "--") if _NAMESPACES[node] else ()
    become = () if user == "root" else ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
    limit = () if timeout_s is None else ("timeout", "--kill-after=5", f"{timeout_s:.3f}")
    settings = (f"{name}={value}" for name, value in names.items())
    return shlex.join((*enter, *become, *limit, "env", "-i", f"--chdir={home}", *settings, *argv))

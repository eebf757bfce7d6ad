"""A real Slurm cluster in containers: bring it up, work with it, break its daemons on purpose, take it down."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import docker

from slurm_soda.containers import docker_resources
from slurm_soda.containers.cluster_spec import (
    CONTROLLER,
    DEFAULT_SLURM,
    HOST_LABEL,
    CgroupPlugin,
    ClusterError,
    ClusterSpec,
)
from slurm_soda.containers.container_commands import (
    ContainerCommandResult,
    ContainerFile,
    RunningContainerCommand,
    get_file,
    put_files,
    run_in_container,
)
from slurm_soda.containers.docker_engine import ReportProgress, connect_docker
from slurm_soda.containers.images import ensure_bare_image, ensure_images
from slurm_soda.containers.slurm_config import slurm_config_files
from slurm_soda.containers.slurm_releases import find_release

_READY_WITHIN_S = 60.0
_POLL_S = 0.2
_SOON_S, _PATIENT_POLL_S = 3.0, 0.5
"""What takes longer than that is asked for less often: starting a command in a container costs a tenth of a CPU second."""
_CONFIG = "/etc/slurm-soda/soda.toml"
SERVING_PYTHON = "/opt/serving/bin/python"
"""Runs the example of an inference server, on clusters for services."""
_CONTROLLER_DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "sodad")


def _no_progress(_: str) -> None:
    """Progress for nobody."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What runs, as the engine and as Slurm see it."""

    name: str
    containers: dict[str, str]
    """State (``running``, ``exited``…) by host."""
    nodes: dict[str, str]
    """Slurm's state by node; empty where slurmctld does not answer."""
    daemons: dict[str, bool]
    """The controller's daemons: alive or not."""


class ContainerCluster:
    """One cluster that is up. Made by :meth:`up` and :meth:`find` only."""

    def __init__(self, client: docker.DockerClient, spec: ClusterSpec) -> None:
        self._client, self.spec = client, spec

    @classmethod
    def up(
        cls,
        name: str,
        *,
        nodes: int = 2,
        gpus: int = 4,
        cpus: int = 28,
        memory_mib: int = 64000,
        packed: bool = False,
        slurm: str = DEFAULT_SLURM,
        base: str | None = None,
        systemd: bool = False,
        backup: bool = False,
        serving: bool = False,
        bare: bool = False,
        progress: ReportProgress = _no_progress,
    ) -> ContainerCluster:
        """Brings a cluster up and returns when every node is idle; a failure or an interrupt leaves nothing behind.

        With ``serving`` it has HAProxy everywhere, and ONNX Runtime in :data:`SERVING_PYTHON`'s environment. With ``bare``
        it is a site of Slurm under systemd that has no slurm-soda.

        Raises:
            ClusterError: a value out of range, a cluster of that name, no engine, or a daemon that does not start.
        """
        release = find_release(slurm)
        spec = ClusterSpec(name, nodes, gpus, cpus, memory_mib, packed, slurm, systemd or bare, backup, serving, bare)
        client = connect_docker(progress)
        if docker_resources.find_containers(client, name):
            raise ClusterError(f"cluster {name} is up already; run: sodactl cluster down --name {name}")
        if bare:
            image = ensure_bare_image(client, progress, release, base)
        else:
            image = ensure_images(client, progress, release, base, systemd=systemd, serving=serving)
        cluster = cls(client, spec)
        try:
            progress(f"starting {len(spec.hosts)} containers")
            docker_resources.create_containers(client, spec, image)
            cluster._start(progress)
        except BaseException:
            cluster.down()
            raise
        return cluster

    @classmethod
    def find(cls, name: str, progress: ReportProgress = _no_progress) -> ContainerCluster:
        """The cluster of that name.

        Raises:
            ClusterError: there is none.
        """
        client = connect_docker(progress)
        found = docker_resources.find_containers(client, name)
        if not found:
            raise ClusterError(f"no cluster is called {name}; run: sodactl cluster up --name {name}")
        return cls(client, ClusterSpec.from_labels(found[0].labels))

    def down(self) -> int:
        """Removes the containers, the network and the volume; the number of things removed."""
        return docker_resources.remove_cluster(self._client, self.spec.name)

    # Commands and files

    def exec(
        self,
        user: str,
        argv: Sequence[str],
        *,
        input: bytes | str | None = None,  # noqa: A002 - the name that subprocess.run taught everyone
        timeout_s: float | None = 60.0,
        node: str = CONTROLLER,
        environment: Mapping[str, str] | None = None,
    ) -> ContainerCommandResult:
        """Runs a command on the controller, or on ``node``, as ``user`` in their home, and waits for its end."""
        stdin = input.encode(errors="surrogateescape") if isinstance(input, str) else input
        return run_in_container(
            self._client,
            self.container_of(node),
            argv,
            user=user,
            stdin=stdin,
            timeout_s=timeout_s,
            environment=environment,
        )

    def run(
        self,
        user: str,
        argv: Sequence[str],
        *,
        input: bytes | None = None,  # noqa: A002 - as in exec
        node: str = CONTROLLER,
    ) -> RunningContainerCommand:
        """Starts a command without a time limit; for one whose output is wanted while it runs."""
        return RunningContainerCommand(self._client, self.container_of(node), argv, user=user, stdin=input)

    def copy_in(self, content: bytes, path: str, *, node: str = CONTROLLER, mode: int = 0o644, uid: int = 0) -> None:
        """Writes a file inside one container. /home is shared by all."""
        put_files(self._client, self.container_of(node), [ContainerFile(path, content, mode, uid)])

    def copy_out(self, path: str, *, node: str = CONTROLLER) -> bytes:
        """Content of a file inside one container.

        Raises:
            ClusterError: there is no such file.
        """
        return get_file(self._client, self.container_of(node), path)

    # Daemons. Names: munged, mariadbd, slurmdbd, slurmctld, sodad on the controller; munged, slurmd (slurmd@n1 where
    # nodes share a container), soda-agent on compute hosts.

    def start(self, daemon: str, *, node: str = CONTROLLER) -> None:
        """Starts a daemon; from then on it is restarted a second after it ends, as systemd would do at a site."""
        self._daemonctl(node, "start", daemon)

    def stop(self, daemon: str, *, node: str = CONTROLLER) -> None:
        """Ends a daemon in good order (SIGTERM) and keeps it so."""
        self._daemonctl(node, "stop", daemon)

    def kill(self, daemon: str, *, node: str = CONTROLLER, restart: bool = True) -> None:
        """``kill -9``; with ``restart`` false it stays dead until :meth:`start`."""
        self._daemonctl(node, "kill", daemon, *(() if restart else ("norestart",)))

    def alive(self, daemon: str, *, node: str = CONTROLLER) -> bool:
        """The daemon's process exists."""
        return self.exec("root", ("daemonctl", "alive", daemon), node=node).status == 0

    def start_daemon(self, config_toml: str | None = None) -> None:
        """Starts sodad, with this configuration file if one is given."""
        if config_toml is not None:
            self.copy_in(config_toml.encode(), _CONFIG)
        self.start("sodad")

    def stop_daemon(self) -> None:
        """Ends sodad in good order."""
        self.stop("sodad")

    def restart_slurmctld(self) -> None:
        """Ends slurmctld in good order, starts it and waits until it answers."""
        self.stop("slurmctld")
        self.start("slurmctld")
        self.wait_until(lambda: self.exec("root", ("scontrol", "ping")).status == 0, "slurmctld answers")

    def wait_until(self, condition: Callable[[], bool], what: str, within_s: float = _READY_WITHIN_S) -> None:
        """Polls until the condition holds.

        Raises:
            ClusterError: it did not within ``within_s``.
        """
        began_s = time.monotonic()
        while not condition():
            waited_s = time.monotonic() - began_s
            if waited_s > within_s:
                raise ClusterError(
                    f"cluster {self.spec.name}: not within {within_s:.0f} s: {what};"
                    f" see: sodactl cluster logs --name {self.spec.name}"
                )
            time.sleep(_POLL_S if waited_s < _SOON_S else _PATIENT_POLL_S)

    def create_net_cls(self) -> bool:
        """Has the kernel make the net_cls hierarchy of cgroup v1, which agents then find, until the cluster goes.

        False where there is none to be had: the kernel has none, or the engine refuses.
        """
        try:
            container = docker_resources.create_net_cls_container(self._client, self.spec)
            ready = ("sh", "-c", "for _ in $(seq 100); do [ -e /run/ready ] && exit; sleep 0.1; done; exit 1")
            return run_in_container(self._client, container, ready, user="root", timeout_s=20).status == 0
        except ClusterError:
            return False

    # What there is to see

    def status(self) -> ClusterStatus:
        """What runs now."""
        found = {c.labels[HOST_LABEL]: c.status for c in docker_resources.find_containers(self._client, self.spec.name)}
        containers = {host: state for host, state in found.items() if host in self.spec.hosts}
        if containers.get(CONTROLLER) != "running":
            return ClusterStatus(self.spec.name, containers, {}, {})
        daemons = {daemon: self.alive(daemon) for daemon in _CONTROLLER_DAEMONS}
        return ClusterStatus(self.spec.name, containers, self.node_states(), daemons)

    def node_states(self) -> dict[str, str]:
        """Slurm's state by node; empty where slurmctld does not answer."""
        reply = self.exec("root", ("sinfo", "--noheader", "--Node", "--format=%N %T"), timeout_s=20)
        return dict(line.split(None, 1) for line in reply.stdout.splitlines()) if reply.status == 0 else {}

    def logs(self, lines: int = 200) -> dict[str, str]:
        """The end of every daemon's log, by ``host/daemon``."""
        script = 'cd /var/log/cluster 2>/dev/null && for f in *.log; do echo "==> $f"; tail -n "$0" "$f"; done'
        found = {}
        for host in self.spec.hosts:
            try:
                text = self.exec("root", ("sh", "-c", script, str(lines)), node=host).stdout
            except ClusterError as error:
                found[f"{host}/container"] = f"{error}\n"
                continue
            for part in text.split("==> ")[1:]:
                name, _, log = part.partition("\n")
                found[f"{host}/{name.removesuffix('.log')}"] = log
        return found

    # Inside

    def container_of(self, node: str) -> str:
        """Docker's name of the container behind a node, or behind the controller.

        Raises:
            ClusterError: the cluster has no such node.
        """
        host = self.spec.compute_hosts[0] if self.spec.packed and node in self.spec.node_names else node
        if host not in self.spec.hosts:
            raise ClusterError(f"cluster {self.spec.name} has no node {node}; it has {', '.join(self.spec.hosts)}")
        return self.spec.container(host)

    def _daemonctl(self, node: str, *words: str) -> None:
        self.exec("root", ("daemonctl", *words), node=node).check()

    def _start(self, progress: ReportProgress) -> None:
        cgroup = self._cgroup(progress)
        key = secrets.token_bytes(128)
        files = [ContainerFile(f"/etc/slurm/{name}", text.encode()) for name, text in self._slurm_files(cgroup).items()]
        for host in self.spec.hosts:
            put_files(
                self._client, self.container_of(host), [*files, ContainerFile("/etc/munge/munge.key", key, 0o400)]
            )
        progress("starting Slurm")
        for host in self.spec.controllers:
            self.exec("root", ("start-controller", host), node=host).check()
        for host in self.spec.compute_hosts:
            names = self.spec.node_names if self.spec.packed else (host,)
            without = {"WITHOUT_AGENT": "1"} if self.spec.bare else {}
            start = ("start-node", str(self.spec.gpus), *names)
            self.exec("root", start, node=host, environment=without).check()
        self.wait_until(self._all_idle, f"all {self.spec.nodes} nodes are idle")

    def _slurm_files(self, cgroup: CgroupPlugin) -> dict[str, str]:
        return slurm_config_files(self.spec, cgroup)

    def _cgroup(self, progress: ReportProgress) -> CgroupPlugin:
        """The cgroup plugin that every compute host can run."""
        if self.spec.packed:
            return "none"
        replies = {
            self.exec("root", ("prepare-cgroup",), node=host).check().stdout.strip() for host in self.spec.compute_hosts
        }
        if replies == {"v1"}:
            return "v1"
        if replies == {"v2"}:
            return "v2"
        progress("this engine gives containers no cgroups of their own: jobs run without limits on cores and memory")
        return "none"

    def _all_idle(self) -> bool:
        states = self.node_states()
        return len(states) == self.spec.nodes and set(states.values()) == {"idle"}

"""The cluster with the service on it, and what is done to it: scaled, drained, killed, its nodes hung and cut off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import docker

from benchmarks.faults import first_rows
from benchmarks.service_faults import served_model
from benchmarks.service_faults.served_model import FOLDER, PROFILE_FOLDER, ROUTER_PORT, SERVER, SERVICE, SERVICE_FILE
from benchmarks.service_faults.service_watch import SeenInstance, ServiceWatch
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import CONTROLLER, LABEL, ClusterError
from slurm_soda.demo import cluster_runs
from slurm_soda.demo.services_day.owner_commands import OWNER, owner_sodactl, put_file, running_router, stop_sodad
from slurm_soda.slurm_ext.errors import SodaError

NodeFault = Literal["hangs", "lost"]
NODES, CORES, GPUS = 4, 1, 1
"""A core a node, so that each instance has a node of its own."""
SLURM_TIMES_S = {"SlurmdTimeout": 20, "MessageTimeout": 10}
"""Slurm takes a silent node for down after so long (its default is 300), and gives up a message (its default)."""
READY_WITHIN_S = 300.0
"""Long, for a machine that others use too."""
_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "serving"
_FORGET = f"pkill -KILL -u {OWNER}; rm -rf /var/lib/slurm-soda/soda.db* /var/lib/slurm-soda/sodad.lock {FOLDER}"
_REVIVE = """
rm -rf /run/cluster/*.supervised /run/cluster/*.pid
prepare-cgroup >/dev/null
start-node {gpus} {node}
"""


class ServiceCluster:
    """Use :func:`service_cluster`.

    Attributes:
        cluster: the containers.
        watch: what sodad shows.
        url: where queries go, from this machine.
    """

    def __init__(self, cluster: ContainerCluster, say: Callable[[str], None]) -> None:
        self.cluster, self.say = cluster, say
        self._docker: Any = docker.from_env()
        address = self._address(CONTROLLER)
        self.url = f"http://{address}:{ROUTER_PORT}/predict"
        self.watch: ServiceWatch

    def prepare(self, target_ms: float) -> None:
        """Slurm's times, the service's files, and sodad; on a cluster that was kept, anew."""
        self._clear()
        edit = "; ".join(f"s/^{name}=.*/{name}={value}/" for name, value in SLURM_TIMES_S.items())
        for host in self.cluster.spec.hosts:
            self.cluster.exec("root", ("sed", "-i", edit, "/etc/slurm/slurm.conf"), node=host).check()
        self.cluster.exec("root", ("scontrol", "reconfigure")).check()
        self.cluster.exec(OWNER, ("srun", f"--nodes={NODES}", f"--ntasks={NODES}", "true")).check()
        self.cluster.exec(OWNER, ("mkdir", "-p", "-m", "700", FOLDER, f"{FOLDER}/services", PROFILE_FOLDER)).check()
        for name in ("http_service.py", "batching.py"):
            put_file(self.cluster, f"{FOLDER}/{name}", (_EXAMPLE / name).read_text())
        put_file(self.cluster, SERVER, served_model.SERVER_TEXT)
        put_file(self.cluster, SERVICE_FILE, served_model.service_text(target_ms))
        profile = json.dumps(served_model.profile_document(target_ms, time.time()))
        put_file(self.cluster, f"{PROFILE_FOLDER}/profile.json", profile)
        self.cluster.start_daemon(served_model.DAEMON_TOML)
        self.cluster.wait_until(
            lambda: cluster_runs.read_status(self.cluster).get("last_cycle") is not None,
            "sodad has run a cycle",
            READY_WITHIN_S,
        )

    def _clear(self) -> None:
        """End what an earlier run has left here."""
        self.cluster.exec("root", ("scancel", f"--user={OWNER}")).check()
        self.cluster.wait_until(
            lambda: not self.cluster.exec("root", ("squeue", "-h")).stdout.strip(), "no job is left", READY_WITHIN_S
        )
        stop_sodad(self.cluster)
        self.cluster.exec("root", ("sh", "-c", _FORGET)).check()

    def start(self) -> None:
        """Submit the arrays, and wait for the first instance."""
        owner_sodactl(self.cluster, "start", SERVICE_FILE, "--tasks", str(served_model.TASKS)).check()
        self.watch = ServiceWatch(self.cluster, SERVICE)
        self.watch.wait("the first instance is ready", lambda sight: len(sight.ready) == 1, READY_WITHIN_S)

    def scale(self, least: int, most: int) -> None:
        """As its owner does, until it is done: it is how a scenario begins."""
        owner_sodactl(self.cluster, "scale", SERVICE, "--least", f"{least}", "--most", f"{most}").check()

    def drain_all(self) -> None:
        """As its owner does, such as for new weights."""
        owner_sodactl(self.cluster, "drain", SERVICE, "--all").check()

    def kill_instance(self, instance: SeenInstance) -> None:
        """``kill -9`` by Slurm for the task's batch step: the program and its server die at once, and the job ends."""
        self.cluster.exec(OWNER, ("scancel", "--batch", "--signal=KILL", str(instance.job_id))).check()

    def kill_server(self, instance: SeenInstance) -> None:
        """``kill -9`` for the owner's command alone."""
        pattern = f"^python3 {SERVER.replace('.', '[.]')} "
        self.cluster.exec("root", ("pkill", "-KILL", "-f", pattern), node=instance.host).check()

    def fail_node(self, node: str, fault: NodeFault) -> None:
        """A node that hangs: its kernel answers, no process does. A node that is lost: nothing of it is there any more."""
        container = self._container(node)
        if fault == "hangs":
            container.pause()
        else:
            # Its end closes no connection: a node without power does not either.
            self.cluster.exec("root", ("ip", "link", "set", "eth0", "down"), node=node).check()
            container.kill()

    def revive_node(self, node: str, fault: NodeFault) -> None:
        """It goes on, or is started again; gives it back to Slurm."""
        container = self._container(node)
        if fault == "hangs":
            container.unpause()
        else:
            before = self._address(node)
            container.start()
            self.cluster.exec("root", ("sh", "-c", _REVIVE.format(gpus=GPUS, node=node)), node=node).check()
            if (now := self._address(node)) != before:
                self.cluster.exec("root", ("scontrol", "update", f"NodeName={node}", f"NodeAddr={now}")).check()
        self.cluster.wait_until(
            lambda: self.node_state(node) in ("idle", "allocated", "mixed"), f"Slurm has {node} again", 120.0
        )

    def count_requeues(self) -> int:
        """How often sodad has requeued instances, by its trail."""
        asked = "select count(*) from action where kind = 'requeue' and state = 'done'"
        return int(first_rows(self.cluster, asked)[0][0])

    def count_open_actions(self) -> int:
        """Changes of which sodad's trail does not tell the end."""
        return int(first_rows(self.cluster, "select count(*) from action where state in ('intended', 'sent')")[0][0])

    def wait_down(self, node: str) -> None:
        """Until Slurm takes the node for down."""
        self.cluster.wait_until(lambda: self.node_state(node).startswith("down"), f"Slurm has {node} down", 180.0)

    def node_state(self, node: str) -> str:
        """As sinfo shows it; empty where slurmctld does not answer in time."""
        return self.cluster.node_states().get(node, "")

    def _container(self, node: str) -> Any:
        return self._docker.containers.get(self.cluster.container_of(node))

    def _address(self, node: str) -> str:
        networks = self._container(node).attrs["NetworkSettings"]["Networks"]
        return str(networks[self.cluster.spec.prefix]["IPAddress"])


@contextmanager
def service_cluster(
    name: str, target_ms: float, say: Callable[[str], None], *, keep: bool = False
) -> Iterator[ServiceCluster]:
    """The cluster, with the service running on it; it goes with the block, containers that were paused too.

    Args:
        name: of the cluster; one that an earlier run kept is taken.
        target_ms: of the service.
        say: takes a line of progress.
        keep: leave the cluster up.

    Raises:
        ClusterError: it does not come up, or the service does not.
    """
    cluster = _find_or_bring_up(name, say)
    try:
        site = ServiceCluster(cluster, say)
        say("starting sodad, router and service")
        site.prepare(target_ms)
        with running_router(cluster, SERVICE_FILE, FOLDER, ROUTER_PORT):
            site.start()
            yield site
            say_problems(site, cluster_runs.daemon_problems(cluster_runs.read_status(cluster)))
    finally:
        for container in docker.from_env().containers.list(filters={"status": "paused", "label": f"{LABEL}={name}"}):
            container.unpause()
        if keep:
            say(f"the cluster stays up; remove it with: sodactl cluster down --name {name}")
        else:
            cluster.down()


def _find_or_bring_up(name: str, say: Callable[[str], None]) -> ContainerCluster:
    with suppress(ClusterError):
        cluster = ContainerCluster.find(name)
        say(f"cluster {name} is up already")
        return cluster
    return ContainerCluster.up(name, nodes=NODES, gpus=GPUS, cpus=CORES, memory_mib=4000, serving=True, progress=say)


def say_problems(site: ServiceCluster, problems: Sequence[str]) -> None:
    """What was wrong with sodad, and what the router said of itself."""
    for line in problems:
        site.say(line)
    with suppress(SodaError):
        log = site.cluster.exec(OWNER, ("tail", "-n", "20", f"{FOLDER}/router.log"))
        for line in log.stdout.splitlines():
            site.say(f"router: {line}")

"""What a service's owner does on a cluster in containers: files, ``sodactl service``, its router; its tasks in Slurm."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.container_commands import ContainerCommandResult
from slurm_soda.demo.cluster_runs import SODACTL

OWNER = "alice"
_OWNER_UID = 2001


def put_file(cluster: ContainerCluster, path: str, text: str) -> None:
    """Write a file of the owner's."""
    cluster.copy_in(text.encode(), path, uid=_OWNER_UID)


def owner_sodactl(cluster: ContainerCluster, *words: str, timeout_s: float = 60.0) -> ContainerCommandResult:
    """``sodactl service`` as the service's owner."""
    return cluster.exec(OWNER, (SODACTL, "service", *words), timeout_s=timeout_s)


@contextmanager
def running_router(cluster: ContainerCluster, service_file: str, folder: str, port: int) -> Iterator[None]:
    """``sodactl service router`` as the owner, on the controller, for as long as the block lasts.

    Args:
        cluster: one with HAProxy.
        service_file: of the service.
        folder: gets ``router.pid`` and ``router.log``.
        port: where it listens, on all addresses.
    """
    argv = (SODACTL, "service", "router", service_file, "--listen", f"0.0.0.0:{port}")
    running = cluster.run(
        OWNER, ("sh", "-c", 'echo $$ >"$0.pid" && exec "$@" >"$0.log" 2>&1', f"{folder}/router", *argv)
    )
    watched = threading.Thread(target=lambda: [None for _ in running], daemon=True)
    watched.start()
    try:
        yield
    finally:
        with suppress(Exception):
            cluster.exec(OWNER, ("sh", "-c", 'kill "$(cat "$0")"', f"{folder}/router.pid"))
        watched.join(20)


def queued_tasks(cluster: ContainerCluster, arrays: Sequence[int]) -> list[str]:
    """States and resources of the tasks of some arrays that Slurm still has."""
    said = cluster.exec("root", ("squeue", "-h", "-r", "-o", "%F %T %b"))
    rows = [line.split(None, 1) for line in said.stdout.splitlines() if line.strip()]
    return [row[1] for row in rows if row[0].isdigit() and int(row[0]) in arrays]


def stop_sodad(cluster: ContainerCluster) -> None:
    """End it: a machine that has much to do may need longer for that than ``daemonctl stop`` waits."""
    with suppress(ClusterError):
        cluster.stop_daemon()
    cluster.wait_until(lambda: not cluster.alive("sodad"), "sodad has ended")

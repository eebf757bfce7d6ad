"""The containers, the network and the volume of a cluster on the engine: made, found and removed by their label."""

from __future__ import annotations

import time
from typing import Any

import docker

from slurm_soda.containers.cluster_spec import CONTROLLER, LABEL, ClusterError, ClusterSpec
from slurm_soda.containers.docker_engine import describe_refusal

_REMOVE_ATTEMPTS = 5
_REMOVE_PAUSE_S = 0.5


def create_containers(client: docker.DockerClient, spec: ClusterSpec, image: str) -> None:
    """Starts every container, idle: nothing of Slurm runs yet.

    Raises:
        ClusterError: the engine refused.
    """
    try:
        _create(client, spec, image)
    except docker.errors.DockerException as error:
        raise describe_refusal(error, f"start the containers of cluster {spec.name}") from error


def _create(client: docker.DockerClient, spec: ClusterSpec, image: str) -> None:
    labels = {LABEL: spec.name}
    client.networks.create(spec.prefix, driver="bridge", labels=labels)
    client.volumes.create(spec.home_volume, labels=labels)
    if spec.backup:
        client.volumes.create(spec.state_volume, labels=labels)
    api: Any = client.api
    for host in spec.hosts:
        options = _compute_options(spec) if host in spec.compute_hosts else {}
        options |= _systemd_options(options) if spec.systemd else {"command": ["sleep", "infinity"], "init": True}
        client.containers.run(
            image,
            detach=True,
            name=spec.container(host),
            hostname=host,
            labels=spec.labels(host),
            network=spec.prefix,
            networking_config={spec.prefix: api.create_endpoint_config(aliases=[host])},
            volumes=_volumes(spec, host),
            **options,
        )


FUSE_RULE = "c 10:229 rwm"
"""/dev/fuse, for emulated file systems of the kernel; its node in the container is root's alone."""


def _volumes(spec: ClusterSpec, host: str) -> dict[str, dict[str, str]]:
    found = {spec.home_volume: {"bind": "/home", "mode": "rw"}}
    if spec.backup and host in spec.controllers:
        found[spec.state_volume] = {"bind": "/var/spool/slurmctld", "mode": "rw"}
    return found


def _compute_options(spec: ClusterSpec) -> dict[str, Any]:
    """What slurmd needs beyond a plain container; ``privileged`` fails on engines without CAP_SYS_RESOURCE."""
    return {
        "cap_add": ["SYS_ADMIN", "SYS_NICE", "NET_ADMIN"],
        "security_opt": ["apparmor=unconfined"],
        "cgroupns": "private",
        # A rule a device, not one for all: a rule that covers them all would stay in each job's cgroup and nothing
        # would be denied there.
        "device_cgroup_rules": [*(f"c 195:{gpu} rwm" for gpu in range(spec.gpus)), FUSE_RULE],
    }


def _systemd_options(options: dict[str, Any]) -> dict[str, Any]:
    """What systemd needs as the first process. Beside what the units allow, the engine forbids no system call."""
    return {
        "command": ["start-systemd"],
        "environment": {"container": "docker"},
        "tmpfs": {"/run": "", "/run/lock": ""},
        "cap_add": [*options.get("cap_add", ["SYS_ADMIN"]), "SYS_PTRACE", "DAC_READ_SEARCH"],
        "security_opt": ["apparmor=unconfined", "seccomp=unconfined"],
        "cgroupns": "private",
    }


def create_machine_container(client: docker.DockerClient, spec: ClusterSpec, image: str) -> None:
    """Starts the container in which QEMU is to run: idle, without a network, with a volume for the machine's disk.

    Raises:
        ClusterError: the engine refused.
    """
    try:
        client.volumes.create(spec.home_volume, labels={LABEL: spec.name})
        client.containers.run(
            image,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            name=spec.container(CONTROLLER),
            hostname=CONTROLLER,
            labels=spec.labels(CONTROLLER),
            network_mode="none",
            volumes={spec.home_volume: {"bind": "/disk", "mode": "rw"}},
            cap_add=["SYS_ADMIN"],  # mounts its own files once more, to copy them without what is mounted on them
            security_opt=["apparmor=unconfined"],
        )
    except docker.errors.DockerException as error:
        raise describe_refusal(error, f"start the container of the machine {spec.name}") from error


NET_CLS = "net-cls"
_MOUNT_NET_CLS = (
    "mkdir /run/net_cls && mount -t cgroup -o net_cls net_cls /run/net_cls && touch /run/ready && exec sleep infinity"
)


def create_net_cls_container(client: docker.DockerClient, spec: ClusterSpec) -> str:
    """Starts a container that has the net_cls hierarchy of cgroup v1 in being while it runs; its name.

    The kernel makes hierarchies in the host's cgroup namespace only, and the compute hosts have namespaces of their own;
    there it can be mounted once it exists. ``/run/ready`` appears in the container when it does.

    Raises:
        ClusterError: the engine refused.
    """
    name = spec.container(NET_CLS)
    try:
        compute: Any = client.containers.get(spec.container(spec.compute_hosts[0]))
        client.containers.run(
            compute.image.id,
            ["sh", "-c", _MOUNT_NET_CLS],
            detach=True,
            init=True,
            name=name,
            labels=spec.labels(NET_CLS),
            network_mode="none",
            cap_add=["SYS_ADMIN"],
            security_opt=["apparmor=unconfined"],
            cgroupns="host",
        )
    except docker.errors.DockerException as error:
        raise describe_refusal(error, f"start the container {name}") from error
    return name


def find_containers(client: docker.DockerClient, name: str) -> list[Any]:
    """The cluster's containers, running or not."""
    return list(client.containers.list(all=True, filters={"label": f"{LABEL}={name}"}, ignore_removed=True))


def list_cluster_names(client: docker.DockerClient) -> list[str]:
    """Names of all clusters of which anything is left on the engine."""
    found: list[Any] = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    volumes: list[Any] = client.volumes.list(filters={"label": LABEL})
    networks: list[Any] = client.networks.list(filters={"label": LABEL})
    labels = [container.labels for container in found]
    labels += [volume.attrs["Labels"] for volume in volumes] + [network.attrs["Labels"] for network in networks]
    return sorted({one[LABEL] for one in labels})


def remove_cluster(client: docker.DockerClient, name: str) -> int:
    """Removes all that carries the cluster's label; the number of things removed.

    Raises:
        ClusterError: the engine kept something back, several times.
    """
    removed = 0
    for attempt in range(_REMOVE_ATTEMPTS):
        if attempt:
            time.sleep(_REMOVE_PAUSE_S)
        left = _cluster_resources(client, name)
        removed += sum(_remove_one(kind, thing) for kind, thing in left)
        if not _cluster_resources(client, name):
            return removed
    kinds = ", ".join(sorted({kind for kind, _ in _cluster_resources(client, name)}))
    raise ClusterError(
        f"the Docker engine does not let go of cluster {name}'s {kinds}; try again: sodactl cluster down"
    )


def _cluster_resources(client: docker.DockerClient, name: str) -> list[tuple[str, Any]]:
    """Kind and object of all that the cluster owns, what depends on others first."""
    wanted = {"label": f"{LABEL}={name}"}
    return [
        *(("container", thing) for thing in find_containers(client, name)),
        *(("network", thing) for thing in client.networks.list(filters=wanted)),
        *(("volume", thing) for thing in client.volumes.list(filters=wanted)),
    ]


_THAW = (
    "find /sys/fs/cgroup -name freezer.state -path '*/job_*' -exec sh -c 'echo THAWED > \"$1\"' - {} ';';"
    "find /sys/fs/cgroup -name cgroup.freeze -path '*/job_*' -exec sh -c 'echo 0 > \"$1\"' - {} ';'"
)


def _thaw(container: Any) -> None:
    """Lets suspended jobs go on: frozen processes cannot end, and the engine would wait for them without end."""
    if container.status == "running":
        container.exec_run(["sh", "-c", _THAW], user="root")


def _remove_one(kind: str, thing: Any) -> bool:
    """False where somebody else is removing it at this moment, or something still hangs on it."""
    try:
        if kind == "container":
            _thaw(thing)
            thing.remove(force=True, v=True)
        else:
            thing.remove()
    except docker.errors.APIError:
        return False
    return True

"""The containers, the network and the volume of a cluster on the engine: made, found and removed by their label."""

from __future__ import annotations

from typing import Any

import docker
from slurm_soda.containers.spec import LABEL, ClusterSpec


def create(client: docker.DockerClient, spec: ClusterSpec, image: str) -> None:
    """Starts every container, idle: nothing of Slurm runs yet."""
    labels = {LABEL: spec.name}
    client.networks.create(spec.prefix, driver="bridge", labels=labels)
    client.volumes.create(spec.home_volume, labels=labels)
    api: Any = client.api
    for host in spec.hosts:
        options = _compute_options(spec) if host in spec.compute_hosts else {}
        client.containers.run(
            image,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            name=spec.container(host),
            hostname=host,
            labels=spec.labels(host),
            network=spec.prefix,
            networking_config={spec.prefix: api.create_endpoint_config(aliases=[host])},
            volumes={spec.home_volume: {"bind": "/home", "mode": "rw"}},
            **options,
        )


def _compute_options(spec: ClusterSpec) -> dict[str, Any]:
    """What slurmd needs beyond a plain container; ``privileged`` fails on engines without CAP_SYS_RESOURCE."""
    return {
        "cap_add": ["SYS_ADMIN", "SYS_NICE", "NET_ADMIN"],
        "security_opt": ["apparmor=unconfined"],
        "cgroupns": "private",
        # A rule a device, not one for all: a rule that covers them all would stay in each job's cgroup and nothing
        # would be denied there.
        "device_cgroup_rules": [f"c 195:{gpu} rwm" for gpu in range(spec.gpus)],
    }


def of(client: docker.DockerClient, name: str) -> list[Any]:
    """The cluster's containers, running or not."""
    return list(client.containers.list(all=True, filters={"label": f"{LABEL}={name}"}))


def names(client: docker.DockerClient) -> list[str]:
    """Names of all clusters of which anything is left on the engine."""
    found: list[Any] = client.containers.list(all=True, filters={"label": LABEL})
    volumes: list[Any] = client.volumes.list(filters={"label": LABEL})
    networks: list[Any] = client.networks.list(filters={"label": LABEL})
    labels = [container.labels for container in found]
    labels += [volume.attrs["Labels"] for volume in volumes] + [network.attrs["Labels"] for network in networks]
    return sorted({one[LABEL] for one in labels})


def remove(client: docker.DockerClient, name: str) -> int:
    """Removes all that carries the cluster's label; the number of things removed."""
    wanted = {"label": f"{LABEL}={name}"}
    containers = of(client, name)
    for container in containers:
        container.remove(force=True, v=True)
    networks: list[Any] = client.networks.list(filters=wanted)
    volumes: list[Any] = client.volumes.list(filters=wanted)
    for thing in (*networks, *volumes):
        thing.remove()
    return len(containers) + len(networks) + len(volumes)

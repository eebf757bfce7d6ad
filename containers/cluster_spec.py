"""What a cluster consists of: its size, and the names of everything it owns on the engine."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Literal

from slurm_soda.slurm_ext.errors import SodaError

PREFIX = "slurm-soda"
"""Every container, network and volume is called ``slurm-soda-<cluster>…`` and carries :data:`LABEL`."""
LABEL = "slurm-soda.cluster"
SPEC_LABEL = "slurm-soda.spec"
HOST_LABEL = "slurm-soda.host"
USERS = ("alice", "bob", "carol")
MAX_PACKED_NODES = 64
MAX_NODES = 16
MAX_GPUS = 16
DEFAULT_SLURM = "24.11"
CONTROLLER, BACKUP_CONTROLLER = "ctl", "ctl2"
PACKED_HOST = "sim"

CgroupPlugin = Literal["v1", "v2", "none"]


class ClusterError(SodaError):
    """The containers' cluster cannot do what was asked; one line that ends with the remedy."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Size of a cluster; the values are checked when it is made.

    Raises:
        ClusterError: a value outside its range.
    """

    name: str
    nodes: int = 2
    gpus: int = 4
    cpus: int = 28
    memory_mib: int = 64000
    packed: bool = False
    """All compute nodes in one container, without cgroups: for tests of scale."""
    slurm: str = DEFAULT_SLURM
    """Release of Slurm, as :data:`slurm_soda.containers.slurm_releases.SLURM_RELEASES` has them."""
    systemd: bool = False
    """systemd runs the daemons, by their units. Otherwise a script does, and containers start faster."""
    backup: bool = False
    """There is a second host with a slurmctld, which shares the state of the first one's."""
    serving: bool = False
    """Inference services can run: HAProxy and ONNX Runtime are there."""
    bare: bool = False
    """A site before slurm-soda: Slurm under systemd with two partitions, and emulated GPUs."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", self.name):
            raise ClusterError(
                f"cluster name {self.name!r} is not allowed; use up to 31 lower-case letters, digits and hyphens"
            )
        most = MAX_PACKED_NODES if self.packed else MAX_NODES
        hint = "" if self.packed else f" (up to {MAX_PACKED_NODES} with packed)"
        _check("nodes", self.nodes, 1, most, hint)
        _check("gpus", self.gpus, 0, MAX_GPUS)
        _check("cpus", self.cpus, 1, 1024)
        _check("memory_mib", self.memory_mib, 1024, 8_388_608)

    @property
    def prefix(self) -> str:
        """Name of the network and start of every other name."""
        return f"{PREFIX}-{self.name}"

    @property
    def home_volume(self) -> str:
        """Volume behind /home in every container."""
        return f"{self.prefix}-home"

    @property
    def state_volume(self) -> str:
        """Volume behind slurmctld's StateSaveLocation, where controllers share it."""
        return f"{self.prefix}-state"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Slurm's node names, ``n1`` and on."""
        return tuple(f"n{i + 1}" for i in range(self.nodes))

    @property
    def compute_hosts(self) -> tuple[str, ...]:
        """Containers that run slurmd: one a node, or a single one when packed."""
        return (PACKED_HOST,) if self.packed else self.node_names

    @property
    def controllers(self) -> tuple[str, ...]:
        """Containers that run slurmctld, the primary one first."""
        return (CONTROLLER, BACKUP_CONTROLLER) if self.backup else (CONTROLLER,)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All containers, the controllers first."""
        return (*self.controllers, *self.compute_hosts)

    def container(self, host: str) -> str:
        """Docker's name of the container that is called ``host`` inside the cluster."""
        return f"{self.prefix}-{host}"

    def labels(self, host: str) -> dict[str, str]:
        """Labels of one container; they let :meth:`from_labels` find the cluster again."""
        return {LABEL: self.name, SPEC_LABEL: json.dumps(asdict(self)), HOST_LABEL: host}

    @classmethod
    def from_labels(cls, labels: dict[str, str]) -> ClusterSpec:
        """The spec that :meth:`labels` wrote."""
        return cls(**json.loads(labels[SPEC_LABEL]))


def _check(what: str, value: int, least: int, most: int, hint: str = "") -> None:
    if not least <= value <= most:
        raise ClusterError(f"{what} is {value}; allowed is {least} to {most}{hint}")

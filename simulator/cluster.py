"""The virtual cluster: what nodes have, and when they fail."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, IntColumn
from slurm_soda.simulator.errors import SimulatorError

UNCOUNTED = 2**40
"""CPUs, or MiB of memory, of a node whose cluster does not say: more than any job asks for."""

CLUSTER_SYNTAX = "NODESxGPUS[:TYPE][/CPUSc][/MEMORYg], several joined by +, such as 16x4, 8x8:a100/128c/1024g+20x0/64c"
_MOST_NODES, _MOST_DIGITS = 1_000_000, 9
_GROUP = re.compile(
    r"(?P<nodes>N)x(?P<gpus>N)(:(?P<type>[A-Za-z0-9_.-]+))?(/(?P<cpus>N)c)?(/(?P<memory>N)g)?".replace(
        "N", f"[0-9]{{1,{_MOST_DIGITS}}}"
    )
)


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A node that is down from ``down_s`` until ``up_s`` (infinite: for good); its jobs lose what they did not save."""

    node: int
    down_s: float
    up_s: float


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """Nodes as columns, one row a node."""

    name: str
    node_names: tuple[str, ...]
    gpus: IntColumn
    gpu_type: IntColumn
    """Index into :attr:`gpu_types`; -1: untyped, or no GPU."""
    cpus: IntColumn
    memory_mib: IntColumn
    in_partition: BoolColumn
    """Shape (nodes, partitions)."""
    partitions: tuple[str, ...] = ("main",)
    gpu_types: tuple[str, ...] = ()
    failures: tuple[NodeFailure, ...] = ()

    def __len__(self) -> int:
        return len(self.node_names)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.gpus.sum())


def parse_cluster(text: str, partitions: tuple[str, ...] = ("main",)) -> SimulatedCluster:
    """A cluster from a person's words (:data:`CLUSTER_SYNTAX`); every node is in every partition.

    Raises:
        SimulatorError: the text has another form, or no node.
    """
    columns: dict[str, list[int]] = {"gpus": [], "gpu_type": [], "cpus": [], "memory_mib": []}
    types: list[str] = []
    for part in text.split("+"):
        match = _GROUP.fullmatch(part.strip())
        if match is None or not 0 < int(match["nodes"]) <= _MOST_NODES:
            raise SimulatorError(
                f"--cluster {text!r}: {part.strip()!r} is not a group of nodes; write {CLUSTER_SYNTAX}; "
                f"at most {_MOST_NODES} nodes, and numbers of at most {_MOST_DIGITS} digits"
            )
        if match["type"] and match["type"] not in types:
            types.append(match["type"])
        count, gpus = int(match["nodes"]), int(match["gpus"])
        columns["gpus"] += [gpus] * count
        columns["gpu_type"] += [types.index(match["type"]) if match["type"] and gpus else -1] * count
        columns["cpus"] += [int(match["cpus"]) if match["cpus"] else UNCOUNTED] * count
        columns["memory_mib"] += [int(match["memory"]) * 1024 if match["memory"] else UNCOUNTED] * count
    total = len(columns["gpus"])
    return SimulatedCluster(
        name=text,
        node_names=tuple(f"n{row + 1}" for row in range(total)),
        in_partition=np.ones((total, len(partitions)), dtype=np.bool_),
        partitions=partitions,
        gpu_types=tuple(types),
        gpus=np.array(columns["gpus"], dtype=np.int64),
        gpu_type=np.array(columns["gpu_type"], dtype=np.int64),
        cpus=np.array(columns["cpus"], dtype=np.int64),
        memory_mib=np.array(columns["memory_mib"], dtype=np.int64),
    )

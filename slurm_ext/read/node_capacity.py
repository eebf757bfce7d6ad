"""What the smallest node that a waiting job may run on has for it, from Slurm's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from slurm_soda.policies.cpu_fit.start_cores import NodeCapacity
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.host_ranges import HostRange, HostSet, find_ranges
from slurm_soda.slurm_ext.read.job_request import PartitionLimits


class CandidateNodes:
    """All nodes, alike ones together, so that a job is compared with few."""

    def __init__(self, nodes: Sequence[SlurmNode]) -> None:
        self._nodes = nodes

    @cached_property
    def _alike(self) -> list[_AlikeNodes]:
        names: dict[tuple[object, ...], list[str]] = {}
        first: dict[tuple[object, ...], SlurmNode] = {}
        for node in self._nodes:
            key = (node.partitions, node.gpu_type, node.gpus, node.cpus, node.memory_mib)
            names.setdefault(key, []).append(node.name)
            first.setdefault(key, node)
        return [_AlikeNodes(node, names[key]) for key, node in first.items()]

    def smallest_for(self, job: SlurmJob, limits: Mapping[str, PartitionLimits]) -> NodeCapacity | None:
        """Fewest cores and least memory of any node that the job could run on; ``None`` if there is no such node.

        Every partition of the job counts, as Slurm may choose any; nodes that are down count too, as they may come back.

        Raises:
            SlurmReplyError: the nodes that it asks for by name cannot be read.
        """
        per_node = -(-job.gpus // max(job.nodes, 1))
        partitions = job.partition.split(",")
        named = find_ranges(job.req_node_names)
        fitting = [alike.node for alike in self._alike if alike.fit(job, per_node, partitions, named)]
        if not fitting:
            return None
        own = [limits[name] for name in partitions if name in limits]
        most = [limit.most_cpus_per_node for limit in own if limit.most_cpus_per_node]
        memory = [limit.most_memory_per_cpu_mib for limit in own if limit.most_memory_per_cpu_mib]
        return NodeCapacity(
            cores=max(min([node.cpus for node in fitting] + most), 1),
            memory_mib=min(node.memory_mib for node in fitting),
            most_memory_per_core_mib=min(memory, default=0),
        )


@dataclass(frozen=True)
class _AlikeNodes:
    """Nodes that differ in nothing that counts here but their names."""

    node: SlurmNode
    """One of them."""
    names: Sequence[str]

    @cached_property
    def _hosts(self) -> HostSet:
        return HostSet(self.names)

    def fit(self, job: SlurmJob, gpus: int, partitions: Sequence[str], named: Sequence[HostRange]) -> bool:
        node = self.node
        typed = not job.gpu_type or job.gpu_type == node.gpu_type
        held = typed and node.gpus >= gpus and any(name in node.partitions for name in partitions)
        return held and (not named or self._hosts.has_any(named))

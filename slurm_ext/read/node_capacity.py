"""What the smallest node that a waiting job may run on has for it, from Slurm's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_soda.policies.cpu_fit.start_cores import NodeCapacity
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_request import PartitionLimits


def smallest_node(
    job: SlurmJob, nodes: Sequence[SlurmNode], limits: Mapping[str, PartitionLimits]
) -> NodeCapacity | None:
    """Fewest cores and least memory of any node that the job could run on; ``None`` if there is no such node.

    Every partition of the job counts, as Slurm may choose any; nodes that are down count too, as they may come back.
    """
    per_node = -(-job.gpus // max(job.nodes, 1))
    partitions = job.partition.split(",")
    named = frozenset(expand_hosts(job.req_node_names)) if job.req_node_names else frozenset()
    fitting = [node for node in nodes if _fits(node, job, per_node, partitions, named)]
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


def _fits(node: SlurmNode, job: SlurmJob, gpus: int, partitions: Sequence[str], named: frozenset[str]) -> bool:
    typed = not job.gpu_type or job.gpu_type == node.gpu_type
    mine = not named or node.name in named
    return mine and typed and node.gpus >= gpus and any(name in node.partitions for name in partitions)

"""Which pool partitions a job may start in: what job_submit.lua does at submission, and sodad when it moves a waiting job.

slurm_ext/lua/soda_routes.lua follows the same rules; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.pools.kinds import PoolKind, choose_pool_kind
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.policies.snapshot_file.identifiers import GpuTypeName


@dataclass(frozen=True, slots=True)
class SubmittedRequest:
    """The least that a job asks for, as far as it decides where the job may run."""

    gpus: int = 0
    """Over all nodes."""
    gpus_per_node: int = 0
    """On at least one node."""
    gpu_type: GpuTypeName = ""
    """Empty: any."""
    nodes: int = 1
    cores: int = 1
    """Over all nodes."""
    cores_per_node: int = 1
    """On at least one node."""
    whole_nodes: bool = False
    """It takes every core of its nodes (``--exclusive``)."""


def route_job(table: PoolTable, base: str, ask: SubmittedRequest, *, may_borrow: bool) -> tuple[str, ...]:
    """Partitions for a job that names ``base``, those of its own pool first; empty: it stays in the base.

    A CPU job that may borrow goes where all free cores are, one that may not where CPU jobs are left alone. A GPU job that
    no partition of its own pool could ever hold stays in the base, where it runs as it did without pools.
    """
    kind = choose_pool_kind(ask.gpus)
    fitting = [part for part in table if part.base == base and part.kind is kind and could_ever_hold(part, ask)]
    if kind is PoolKind.CPU:
        return tuple(part.name for part in fitting if _open_to_cpu_job(part, may_borrow))
    own = [part.name for part in fitting if not part.borrowing]
    lent = [part.name for part in fitting if part.borrowing and may_borrow]
    return tuple(own + lent) if own else ()


def _open_to_cpu_job(part: PoolPartition, may_borrow: bool) -> bool:
    """Nodes without GPUs have one partition for both."""
    return part.borrowing == may_borrow or part.node_class.gpus == 0


def could_ever_hold(part: PoolPartition, ask: SubmittedRequest) -> bool:
    """Whether a partition could ever hold a job, on empty nodes."""
    cores, nodes = part.most_cores, len(part.nodes)
    asked = part.node_class.cpus if ask.whole_nodes else ask.cores_per_node
    gpus = part.node_class.gpus
    return (
        ask.nodes <= nodes
        and asked <= cores
        and ask.cores <= cores * nodes
        and (ask.gpus == 0 or ask.gpu_type in ("", part.node_class.gpu_type))
        and ask.gpus_per_node <= gpus
        and ask.gpus <= gpus * nodes
    )

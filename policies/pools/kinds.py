"""Which pool a job belongs to (SODA, Section V-C)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slurm_soda.policies.snapshot_file.identifiers import GpuTypeName

LARGE_FROM_GPUS = 4
"""Jobs with at least so many GPUs are the large pool's (Section V-C)."""


class PoolKind(StrEnum):
    """The three pools; the two GPU pools exist once for each GPU type."""

    CPU = "cpu"
    """Jobs without GPUs."""
    SMALL = "small"
    """The paper's 1-GPU pool: fewer than :data:`LARGE_FROM_GPUS` GPUs."""
    LARGE = "large"
    """The paper's 4-GPU pool: :data:`LARGE_FROM_GPUS` or more."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that are alike in what pools divide: one pair of GPU pools and one CPU share for each class."""

    gpu_type: GpuTypeName
    """Slurm's gres type; empty for untyped GPUs and for nodes without."""
    gpus: int
    """GPUs of each node; 0 for a CPU node, all of whose cores are the CPU pool's."""
    cpus: int
    """CPU cores of each node."""


@dataclass(frozen=True, slots=True)
class PoolShare:
    """How one node class is divided."""

    cpu_cores: int
    """Cores of each node that CPU jobs may hold without borrowing (Slurm: MaxCPUsPerNode of the CPU partition)."""
    large_nodes: int
    """Nodes of the class that are the large pool's; the other nodes are the small pool's."""


def choose_pool_kind(gpus: int) -> PoolKind:
    """The pool of a job with so many GPUs in all."""
    if gpus == 0:
        return PoolKind.CPU
    return PoolKind.LARGE if gpus >= LARGE_FROM_GPUS else PoolKind.SMALL

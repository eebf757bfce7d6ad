"""Room for even shares of requests on all nodes at once. Amounts are GPUs, CPUs and memory in MiB; shape (nodes, 3)."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes
from slurm_soda.policies.snapshot import BoolColumn, IntColumn


def flag_fitting(free: FreeNodes, shape: RequestShape, more: IntColumn) -> BoolColumn:
    """By node, whether an even share of a request fits there if it had so much ``more`` free."""
    gpus, cpus, memory_mib = free.gpus + more[:, 0], free.cpus + more[:, 1], free.memory_mib + more[:, 2]
    return free.classes.flag_shares(shape, gpus, cpus, memory_mib)


def count_shares(free: FreeNodes, shape: RequestShape) -> IntColumn:
    """By node, how many even shares of a GPU request fit there."""
    parts = ((free.gpus, shape.gpus), (free.cpus, shape.cpus), (free.memory_mib, shape.memory_mib))
    shares = np.minimum.reduce([column // part for column, part in parts if part])
    usable: IntColumn = np.where(free.classes.usable(shape, free.cpus), shares, 0)
    return usable


def limit_to_others(free: FreeNodes, leaving: IntColumn) -> IntColumn:
    """What GPU jobs may leave on each node, at most what the other nodes have free that have GPUs free."""
    columns = np.stack((free.gpus, free.cpus, free.memory_mib), axis=1) * (free.gpus > 0)[:, None]
    limited: IntColumn = np.minimum(leaving, columns.sum(axis=0) - columns)
    return limited

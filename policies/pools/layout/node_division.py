"""How nodes are divided between the pools (SODA, Section V-C), node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.engine.demand import group_equal_rows
from slurm_soda.policies.pools.kinds import LARGE_FROM_GPUS, NodeClass, PoolShare
from slurm_soda.policies.pools.layout.shares import derive_shares
from slurm_soda.policies.snapshot import BoolColumn, IntColumn, NodeTable


@dataclass(frozen=True, slots=True)
class PoolDivision:
    """One value a node.

    A node of the large pool on which GPUs are left over when jobs of four fill it (one of five) is the small pool's as
    far as these reach, with their part of its cores: no job of four could use them.
    """

    large: BoolColumn
    """Nodes of the large pool."""
    small: BoolColumn
    """Nodes of the small pool. A class that is not divided belongs to both pools as a whole."""
    cpu_cores: IntColumn
    """Cores that CPU jobs may hold without borrowing."""
    small_gpus: IntColumn
    """GPUs that the small pool owns."""
    small_cpus: IntColumn
    """Cores that small jobs may hold beside these without borrowing."""

    @property
    def lent(self) -> BoolColumn:
        """Nodes that the large pool lends: what small jobs hold there beyond their own share is borrowed."""
        lent: BoolColumn = self.large & ~self.small
        return lent


def resolve_part(amount: float, whole: int) -> int:
    """``amount`` below 1 is a part of the whole, rounded to the nearest; from 1 on it is a number, cut to the whole."""
    return min(round(amount * whole) if amount < 1 else int(amount), whole)


def divide_nodes(
    nodes: NodeTable,
    *,
    cpu_cores: float | None = None,
    large_nodes: float | None = None,
    shares: Mapping[NodeClass, PoolShare] | None = None,
) -> PoolDivision:
    """Divide every class of nodes.

    Args:
        nodes: all nodes, unusable ones too: a node that comes back belongs to the same pool.
        cpu_cores: of each GPU node, and ``large_nodes`` of each class, as :func:`resolve_part` reads them; they go before
            everything else.
        shares: of classes of which more is known; others are divided as :func:`.derive_shares` does without history.

    The last nodes of a class are the large pool's, so that a share that moves by one moves one node.
    """
    count = len(nodes)
    large, small = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    cores = nodes.cpus.copy()
    first, code = group_equal_rows((nodes.gpu_type, nodes.gpus, nodes.cpus)) if count else (np.zeros(0, np.intp), cores)
    for number, row in enumerate(first.tolist()):
        if not nodes.gpus[row]:
            continue
        members = np.flatnonzero(code == number)
        node_class = _node_class_of(nodes, row)
        share = (shares or {}).get(node_class) or derive_shares((), {node_class: len(members)})[node_class].share
        if cpu_cores is not None:
            share = replace(share, cpu_cores=resolve_part(cpu_cores, node_class.cpus))
        if large_nodes is not None:
            share = replace(share, large_nodes=resolve_part(large_nodes, len(members)))
        cores[members] = min(max(share.cpu_cores, 0), int(nodes.cpus[row]))
        cut = len(members) - min(max(share.large_nodes, 0), len(members))
        divided = 0 < cut < len(members)
        large[members[cut:] if divided else members] = True
        small[members[:cut] if divided else members] = True
    over = nodes.gpus % LARGE_FROM_GPUS
    over_cpus = nodes.cpus * over // np.maximum(nodes.gpus, 1)
    return PoolDivision(
        large=large,
        small=small,
        cpu_cores=cores,
        small_gpus=np.where(small, nodes.gpus, np.where(large, over, 0)),
        small_cpus=np.where(small, nodes.cpus, np.where(large, over_cpus, 0)),
    )


def _node_class_of(nodes: NodeTable, row: int) -> NodeClass:
    kind = int(nodes.gpu_type[row])
    return NodeClass(nodes.gpu_types[kind] if kind >= 0 else "", int(nodes.gpus[row]), int(nodes.cpus[row]))


def add_pool_columns(nodes: NodeTable, division: PoolDivision) -> NodeTable:
    """The nodes with three more columns for each partition: its nodes of the large pool, of the small one, of only one.

    A request for a partition's large nodes asks for partition number P + p, one for its small nodes for 2 P + p, for those
    of classes that are divided for 3 P + p.
    """
    member = nodes.in_partition
    parts = (division.large, division.small, division.small != division.large)
    return replace(nodes, in_partition=np.hstack((member, *(member & part[:, None] for part in parts))))

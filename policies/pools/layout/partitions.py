"""Pools as partitions: which there are for a partition of the site, and which nodes and cores each may use.

The site's partition (the base) stays as it is, with all its nodes: what the router leaves alone runs there as before.
Beside it stand, for every node class,

========================  ======================================================================================
``BASE_cpu``              CPU jobs that may not be requeued: at most the share's cores of each node
``BASE_cpu_lend``         CPU jobs that may: on every core that is free; requeued when GPU jobs need their own
``BASE_small``            jobs with fewer than 4 GPUs, on the small pool's nodes, beside the CPU pool's share
``BASE_small_lend``       the same on nodes that the large pool lends
``BASE_large``            jobs with 4 GPUs or more, on the large pool's nodes, beside the CPU pool's share
``BASE_large_lend``       the same on nodes that the small pool lends
========================  ======================================================================================

GPU jobs have the base's tier, CPU jobs and borrowers the one below: so GPU jobs come first and take from ``_lend`` what they
need. Since they hold at most what the CPU pool's share leaves, CPU jobs keep that share of each node, whichever of them is
requeued. A CPU job is not offered its own partition beside the lending one, because Slurm keeps the nodes of a partition in
which a job waits from later partitions and jobs, so that such a job, and all behind it, would not borrow.

Where the base has several node classes, each name ends in the class's tag (``BASE_cpu_a100``). A class without GPUs has
``BASE_cpu`` alone; one that is not divided (no large nodes, or nothing else) has no ``_small_lend`` and ``_large_lend``, and
its two GPU pools share all of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pools.kinds import NodeClass, PoolKind, PoolShare
from slurm_soda.policies.snapshot_file.identifiers import NodeName, PartitionName

LEND_SUFFIX = "lend"


@dataclass(frozen=True, slots=True)
class PoolPartition:
    """One partition of a pool."""

    name: PartitionName
    base: PartitionName
    """The site's partition that users name."""
    kind: PoolKind
    """Whose jobs run here."""
    node_class: NodeClass
    borrowing: bool
    """On cores or nodes of another pool: Slurm requeues its jobs when jobs of a higher tier need them."""
    nodes: tuple[NodeName, ...]
    """In slurmctld's order."""
    tier: int
    """Slurm's PriorityTier."""
    cores_per_node: int
    """Slurm's MaxCPUsPerNode, over all jobs of the partition; 0: no limit but the node's."""

    @property
    def most_cores(self) -> int:
        """Cores that one job can have on one node here."""
        return self.cores_per_node or self.node_class.cpus


@dataclass(frozen=True, slots=True)
class PoolTable:
    """Every pool partition by name, in the order in which jobs list them."""

    partitions: Mapping[PartitionName, PoolPartition] = field(default_factory=dict)

    def __iter__(self) -> Iterator[PoolPartition]:
        return iter(self.partitions.values())

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def bases(self) -> tuple[str, ...]:
        """The site's partitions that are under pools."""
        return tuple(dict.fromkeys(part.base for part in self))

    def get(self, partition: str) -> PoolPartition | None:
        """The pool partition of this name; ``None`` for any other partition, a base too."""
        return self.partitions.get(partition)

    def base_of(self, partitions: str) -> str | None:
        """The base behind a job's partition as Slurm shows it: one name or a list, of a base or of its pools.

        ``None`` where the names have no base, or more than one, in common.
        """
        bases = {part.base if (part := self.get(name)) else name for name in partitions.split(",")}
        return bases.pop() if len(bases) == 1 and bases <= set(self.bases) else None

    def merged(self, other: PoolTable) -> PoolTable:
        """Both tables in one."""
        return PoolTable({**self.partitions, **other.partitions})


def plan_pool_partitions(
    base: str,
    tier: int,
    lending_tier: int,
    members: Sequence[tuple[str, NodeClass]],
    shares: Mapping[NodeClass, PoolShare],
) -> PoolTable:
    """The pool partitions of one base.

    Args:
        tier: the base's PriorityTier, which its pools have too.
        lending_tier: tier of the borrowing partitions, below that of every partition with a node in common.
        members: nodes of the base with their class, in slurmctld's order.
        shares: how each class is divided; numbers beyond what the class has are cut to it.

    Raises:
        PolicyError: no node, a class without a share, or a lending tier that is not below the base's.
    """
    if not members:
        raise PolicyError(f"partition {base} has no node; pools need some")
    if lending_tier >= tier:
        raise PolicyError(f"partition {base}: the borrowing tier {lending_tier} must be below the tier {tier}")
    nodes: dict[NodeClass, list[str]] = {}
    for name, node_class in members:
        nodes.setdefault(node_class, []).append(name)
    missing = [node_class for node_class in nodes if node_class not in shares]
    if missing:
        raise PolicyError(f"partition {base}: no share for nodes with {describe_node_class(missing[0])}")
    tags = _class_suffixes(list(nodes))
    found: dict[str, PoolPartition] = {}
    # Own partitions of all classes first: a job that lists several tries them in order where tiers are equal.
    every = [
        part
        for c in nodes
        for part in _partitions_of_class(base, tags[c], (tier, lending_tier), c, nodes[c], share=shares[c])
    ]
    for part in sorted(every, key=lambda part: part.borrowing):
        found[part.name] = part
    return PoolTable(found)


def describe_node_class(node_class: NodeClass) -> str:
    """A node class for people."""
    gpus = f"{node_class.gpus} {node_class.gpu_type} GPUs".replace("  ", " ") if node_class.gpus else "no GPU"
    return f"{gpus} and {node_class.cpus} cores"


def _partitions_of_class(
    base: str, tag: str, tiers: tuple[int, int], node_class: NodeClass, nodes: Sequence[str], *, share: PoolShare
) -> list[PoolPartition]:
    tier, lending_tier = tiers
    # A GPU cannot be fed with less than one core.
    most = max(node_class.cpus - node_class.gpus, 0)
    cores = min(max(share.cpu_cores, 0), most) if node_class.gpus else node_class.cpus
    cut = len(nodes) - min(max(share.large_nodes, 0), len(nodes))
    divided = 0 < cut < len(nodes)
    # The last nodes are the large pool's: a share that moves by one moves one node.
    small, large = (nodes[:cut], nodes[cut:]) if divided else (nodes, nodes)

    def part(kind: PoolKind, on: Sequence[str], limit: int, *, borrows: bool = False) -> PoolPartition:
        words = [base, kind.value, *([LEND_SUFFIX] if borrows else []), *([tag] if tag else [])]
        own_tier = lending_tier if borrows or kind is PoolKind.CPU else tier
        cores_per_node = 0 if limit == node_class.cpus else limit
        return PoolPartition("_".join(words), base, kind, node_class, borrows, tuple(on), own_tier, cores_per_node)

    own = [part(PoolKind.CPU, nodes, cores)] if cores else []
    if not node_class.gpus:
        return own
    rest = node_class.cpus - cores
    own += [part(PoolKind.SMALL, small, rest), part(PoolKind.LARGE, large, rest)]
    own.append(part(PoolKind.CPU, nodes, node_class.cpus, borrows=True))
    if divided:
        own += [part(PoolKind.SMALL, large, rest, borrows=True), part(PoolKind.LARGE, small, rest, borrows=True)]
    return own


def _class_suffixes(classes: Sequence[NodeClass]) -> dict[NodeClass, str]:
    """End of the names of each class: nothing where there is one, else as short as tells them apart."""
    if len(classes) == 1:
        return {classes[0]: ""}
    short = {c: c.gpu_type or ("gpu" if c.gpus else "nogpu") for c in classes}
    long = {c: f"{short[c]}x{c.gpus}c{c.cpus}" for c in classes}
    return {c: short[c] if list(short.values()).count(short[c]) == 1 else long[c] for c in classes}

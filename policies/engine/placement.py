"""A working copy of what nodes have free, on which a policy places whole gangs.

Placement is consolidated best fit (Tiresias, Section 3.3.2, its side for jobs that must be packed): the fewest nodes
that do, among those the ones that keep the fewest GPUs, then CPUs, over; ties go to the lower node row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.demand import ANY_GPU_TYPE, ANY_NODE, RequestShape
from slurm_soda.policies.snapshot import BoolColumn, IntColumn, NodeTable

_MOST_IN_64_BITS = 2**63 - 1


class NodeAllocation(NamedTuple):
    """What a gang takes on one node (a row of the node table)."""

    node: int
    gpus: int
    cpus: int
    memory_mib: int


class NodeGroups:
    """Nodes grouped by the partitions they are in and their GPU type: a request sees whole groups or none of them.

    Unusable nodes are in no class.
    """

    def __init__(self, nodes: NodeTable, usable: BoolColumn | None = None) -> None:
        usable = nodes.usable if usable is None else usable
        self.members, self.of = _group_nodes(nodes.in_partition.tobytes(), nodes.gpu_type.tobytes(), usable.tobytes())
        self._in_partition = [nodes.in_partition[members[0]] for members in self.members]
        self._gpu_type = [int(nodes.gpu_type[members[0]]) for members in self.members]
        self._node_sets, self._cpus = list(nodes.node_sets.T), nodes.cpus
        self._added: dict[bytes, int] = {}
        """Sets of nodes that the decision itself makes, by their flags."""
        self._matching: dict[tuple[int, int], tuple[int, ...]] = {}
        self._matching_nodes: dict[tuple[int, int], BoolColumn] = {}

    def matching(self, partition: int, gpu_type: int) -> tuple[int, ...]:
        """The classes of the nodes of a partition with this GPU type, or any."""
        key = (partition, gpu_type)
        if key not in self._matching:
            self._matching[key] = tuple(
                number
                for number in range(len(self.members))
                if 0 <= partition < len(self._in_partition[number])
                and self._in_partition[number][partition]
                and gpu_type in (ANY_GPU_TYPE, self._gpu_type[number])
            )
        return self._matching[key]

    def mask(self, shape: RequestShape) -> BoolColumn:
        """Which nodes a shape may use, as one flag a node; read only."""
        key = (shape.partition, shape.gpu_type)
        flags = self._matching_nodes.get(key)
        if flags is None:
            flags = self._matching_nodes[key] = np.isin(self.of, self.matching(*key))
            flags.setflags(write=False)
        return flags if shape.node_set == ANY_NODE else flags & self._node_sets[shape.node_set]

    def bound_to(self, shape: RequestShape, flags: BoolColumn) -> RequestShape:
        """The same request for these nodes alone."""
        key = flags.tobytes()
        if key not in self._added:
            self._added[key] = len(self._node_sets)
            self._node_sets.append(flags)
        return shape._replace(node_set=self._added[key])

    def bars(self, shape: RequestShape, node: int) -> bool:
        """Whether a node of a matching group will not do, as the request is bound to others."""
        return shape.node_set != ANY_NODE and not self._node_sets[shape.node_set].item(node)

    def cpus_on(self, shape: RequestShape, node: int) -> int:
        """CPUs that an even share of a request takes of a node."""
        return max(shape.cpus, self._cpus.item(node)) if shape.whole_nodes else shape.cpus

    def usable(self, shape: RequestShape, cpus: IntColumn) -> BoolColumn:
        """Which nodes a request may use, with so many CPUs free on each."""
        flags = self.mask(shape)
        if shape.whole_nodes:
            flags = flags & (cpus >= self._cpus)
        return flags & (cpus >= shape.least_cpus) if shape.least_cpus else flags

    def flag_shares(self, shape: RequestShape, gpus: IntColumn, cpus: IntColumn, memory_mib: IntColumn) -> BoolColumn:
        """On which nodes an even share of a request fits, with so much free on each."""
        enough = (gpus >= shape.gpus) & (cpus >= shape.cpus) & (memory_mib >= shape.memory_mib)
        fits: BoolColumn = enough & self.usable(shape, cpus)
        return fits

    def with_whole_nodes(self, shape: RequestShape, pieces: list[NodeAllocation] | None) -> list[NodeAllocation] | None:
        """Shares in any split, with all CPUs of their nodes for a request that wants these."""
        if pieces is None or not shape.whole_nodes:
            return pieces
        return [piece._replace(cpus=max(piece.cpus, self._cpus.item(piece.node))) for piece in pieces]


@lru_cache(maxsize=16)
def _group_nodes(in_partition: bytes, gpu_type: bytes, usable: bytes) -> tuple[tuple[IntColumn, ...], IntColumn]:
    """Rows of each group, and the group of each row, -1 for none, of nodes with these columns; read only."""
    kind, rows = np.frombuffer(gpu_type, dtype=np.int64), np.flatnonzero(np.frombuffer(usable, dtype=np.bool_))
    width = len(in_partition) // max(len(kind), 1)
    groups: dict[tuple[bytes, int], list[int]] = {}
    for row, code in zip(rows.tolist(), kind[rows].tolist(), strict=True):
        groups.setdefault((in_partition[row * width : (row + 1) * width], code), []).append(row)
    of = np.full(len(kind), -1, dtype=np.int64)
    members = tuple(np.array(group, dtype=np.int64) for group in groups.values())
    for number, group in enumerate(members):
        of[group] = number
    for column in (*members, of):
        column.setflags(write=False)
    return members, of


class FreeNodes:
    """Free GPUs, CPUs and memory of each node, indexed for best fit.

    Each class keeps its nodes in one list sorted by (free GPUs, free CPUs, row), folded into one integer. Finding places
    for a one-node shape is a bisection, O(log n), unless nodes with GPUs and CPUs to spare lack memory (these are
    walked over); taking or giving back is a bisection and a move in that list.
    """

    def __init__(self, classes: NodeGroups, gpus: IntColumn, cpus: IntColumn, memory_mib: IntColumn) -> None:
        self.classes = classes
        self.gpus, self.cpus, self.memory_mib = (np.maximum(column, 0) for column in (gpus, cpus, memory_mib))
        # Views of the same numbers: one of them is read in half the time.
        self._gpus, self._cpus, self._memory_mib = self.gpus.data, self.cpus.data, self.memory_mib.data
        self._class = classes.of.data
        self._nodes = max(len(gpus), 1)
        # Resources only come back that were taken, or that running jobs hold: allow for the larger CPU counts.
        self._span = (int(self.cpus.max(initial=0)) + 1) * self._nodes
        self._reindex()

    def _reindex(self) -> None:
        fits = (int(self.gpus.max(initial=0)) + 1) * self._span <= _MOST_IN_64_BITS
        gpus = self.gpus if fits else self.gpus.astype(object)
        keys = gpus * self._span + self.cpus * self._nodes + np.arange(len(self.gpus))
        self._keys = [np.sort(keys[members]).tolist() for members in self.classes.members]

    def copy(self) -> FreeNodes:
        """An independent pool with the same contents."""
        return FreeNodes(self.classes, self.gpus.copy(), self.cpus.copy(), self.memory_mib.copy())

    def find(self, shape: RequestShape) -> list[NodeAllocation] | None:
        """Room for a whole gang, or ``None``; takes nothing."""
        if shape.fills_holes:
            return self._find_split(shape) or (self._find_even(shape) if shape.is_even else None)
        found = self._find_even(shape) if shape.is_even else None
        return self._find_split(shape) if found is None and shape.units else found

    def take(self, pieces: list[NodeAllocation]) -> None:
        """Take what :meth:`find` found."""
        for node, gpus, cpus, memory_mib in pieces:
            self.put(node, self._gpus[node] - gpus, self._cpus[node] - cpus, self._memory_mib[node] - memory_mib)

    def give(self, pieces: list[NodeAllocation]) -> None:
        """Give resources back, or add those of a job that leaves."""
        for node, gpus, cpus, memory_mib in pieces:
            self.put(node, self._gpus[node] + gpus, self._cpus[node] + cpus, self._memory_mib[node] + memory_mib)

    def on(self, node: int) -> tuple[int, int, int]:
        """GPUs, CPUs and memory that a node has free."""
        return self._gpus[node], self._cpus[node], self._memory_mib[node]

    def put(self, node: int, gpus: int, cpus: int, memory_mib: int) -> None:
        """Set what a node has free."""
        self._memory_mib[node] = memory_mib
        old = self._gpus[node] * self._span + self._cpus[node] * self._nodes + node
        self._gpus[node], self._cpus[node] = gpus, cpus
        if (cpus + 1) * self._nodes > self._span:
            self._span = 2 * (cpus + 1) * self._nodes
            self._reindex()
            return
        number = self._class[node]
        if number >= 0:
            keys = self._keys[number]
            new = gpus * self._span + cpus * self._nodes + node
            if new != old:
                del keys[bisect_left(keys, old)]
                insort(keys, new)

    def would_fit(self, shape: RequestShape, more: Mapping[int, Sequence[int]]) -> bool:
        """Whether a gang would fit if nodes had so much more (GPUs, CPUs, memory in MiB) free; takes nothing."""
        if shape.is_even and not shape.units and not (shape.whole_nodes or shape.least_cpus):
            return self._nodes_would_do(shape, more)
        gpus, cpus, memory_mib = (column.copy() for column in (self.gpus, self.cpus, self.memory_mib))
        for node, amounts in more.items():
            for column, amount in zip((gpus, cpus, memory_mib), amounts, strict=True):
                column[node] += amount
        if shape.is_even and np.count_nonzero(self.classes.flag_shares(shape, gpus, cpus, memory_mib)) >= shape.nodes:
            return True
        usable = self.classes.usable(shape, cpus)
        slots = np.where(usable, count_slots(shape, gpus, cpus, memory_mib), 0) if shape.units else None
        return slots is not None and split_over_nodes(shape, slots) is not None

    def _nodes_would_do(self, shape: RequestShape, more: Mapping[int, Sequence[int]]) -> bool:
        fitting = set(self.fitting_nodes(shape))
        lacking, usable = shape.nodes - len(fitting), self.classes.mask(shape)
        for node, (gpus, cpus, memory_mib) in more.items() if lacking > 0 else ():
            if (
                node not in fitting
                and self._gpus[node] + gpus >= shape.gpus
                and self._cpus[node] + cpus >= shape.cpus
                and self._memory_mib[node] + memory_mib >= shape.memory_mib
                and usable.item(node)
            ):
                lacking -= 1
                if not lacking:
                    return True
        return lacking <= 0

    def fitting_nodes(self, shape: RequestShape) -> list[int]:
        """Up to as many nodes as an even gang needs, each with enough free for its part; best fit first."""
        numbers = self.classes.matching(shape.partition, shape.gpu_type)
        if len(numbers) == 1:
            return [key % self._nodes for key in self._best(numbers[0], shape)]
        keys = sorted(key for number in numbers for key in self._best(number, shape))
        return [key % self._nodes for key in keys[: shape.nodes]]

    def _find_even(self, shape: RequestShape) -> list[NodeAllocation] | None:
        nodes = self.fitting_nodes(shape)
        if len(nodes) < shape.nodes:
            return None
        cpus_on = self.classes.cpus_on
        return [NodeAllocation(node, shape.gpus, cpus_on(shape, node), shape.memory_mib) for node in nodes]

    def _find_split(self, shape: RequestShape) -> list[NodeAllocation] | None:
        usable = self.classes.usable(shape, self.cpus)
        slots = np.where(usable, count_slots(shape, self.gpus, self.cpus, self.memory_mib), 0)
        slots = keep_smallest_holes(shape, slots, self.gpus) if shape.fills_holes else slots
        return self.classes.with_whole_nodes(shape, split_over_nodes(shape, slots))

    def _bars(self, shape: RequestShape, node: int) -> bool:
        return self.classes.bars(shape, node) or self._cpus[node] < self.classes.cpus_on(shape, node)

    def _best(self, number: int, shape: RequestShape) -> list[int]:
        """Keys of the class's nodes that fit best, at most as many as the shape needs."""
        keys, span, nodes = self._keys[number], self._span, self._nodes
        least_cpus, best, bound = shape.cpus * nodes, [], shape.node_set != ANY_NODE or shape.whole_nodes
        at = bisect_left(keys, shape.gpus * span + least_cpus)
        while at < len(keys):
            key = keys[at]
            if key % span < least_cpus:  # too few CPUs: on to the first node with as many GPUs and enough CPUs
                at = bisect_left(keys, key - key % span + least_cpus, at + 1)
                continue
            if self._memory_mib[key % nodes] >= shape.memory_mib and not (bound and self._bars(shape, key % nodes)):
                best.append(key)
                if len(best) == shape.nodes:
                    break
            at += 1
        return best


def split_over_nodes(shape: RequestShape, slots: IntColumn) -> list[NodeAllocation] | None:
    """Split a request over nodes with so many units free: fewest nodes, largest first, the last piece by best fit.

    ``None`` if there is not enough, or only on more than the shape's ``most_nodes``. O(n log n) in nodes, in numpy.
    """
    order = np.argsort(-slots, kind="stable")
    free_capacity = slots[order]
    least = min(shape.nodes, shape.units)
    if int(free_capacity.sum()) < shape.units or np.count_nonzero(free_capacity) < least:
        return None
    pieces: list[NodeAllocation] = []
    left = shape.units
    for at, (node, slot) in enumerate(zip(order.tolist(), free_capacity.tolist(), strict=True)):
        others = max(least - len(pieces) - 1, 0)
        if left <= slot and not others:
            tightest = free_capacity[np.searchsorted(-free_capacity, -left, side="right") - 1]
            best = max(at, int(np.searchsorted(-free_capacity, -tightest, side="left")))
            pieces.append(_node_allocation(shape, int(order[best]), left))
            break
        amount = min(slot, left - others)
        pieces.append(_node_allocation(shape, node, amount))
        left -= amount
    return None if 0 < shape.most_nodes < len(pieces) else pieces


def keep_smallest_holes(shape: RequestShape, slots: IntColumn, gpus: IntColumn) -> IntColumn:
    """The same slots, with 0 where a node has more GPUs free than need be: nodes with fewer add up to the request.

    So whole nodes are left for those who need them (Tiresias, Section 3.3.2: to decrease fragmentation).
    """
    nodes = np.flatnonzero(slots > 0)
    nodes = nodes[np.argsort(gpus[nodes], kind="stable")]
    counts = np.arange(1, len(nodes) + 1)
    enough = np.flatnonzero((np.cumsum(slots[nodes]) >= shape.units) & (counts >= min(shape.nodes, shape.units)))
    return np.where(gpus <= gpus[nodes[enough[0]]], slots, 0) if len(enough) else slots


def count_slots(shape: RequestShape, gpus: IntColumn, cpus: IntColumn, memory_mib: IntColumn) -> IntColumn:
    """How many units of a split request each node could hold, at most all of them."""
    slots = np.minimum(gpus if shape.wants_gpus else cpus, shape.units)
    if shape.wants_gpus and shape.unit_cpus:
        slots = np.minimum(slots, cpus // shape.unit_cpus)
    if shape.unit_memory_mib:
        slots = np.minimum(slots, memory_mib // shape.unit_memory_mib)
    return slots


def _node_allocation(shape: RequestShape, node: int, units: int) -> NodeAllocation:
    gpus = units if shape.wants_gpus else 0
    return NodeAllocation(node, gpus, units * shape.unit_cpus, units * shape.unit_memory_mib)

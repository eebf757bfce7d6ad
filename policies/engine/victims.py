"""Which running jobs must leave so that a waiting one fits.

Rank decides: of all sets of jobs that would free enough, the set whose best-ranked member ranks worst is taken. Any other
choice would be undone at once, since a preempted job may itself claim the places of jobs that rank below it. Jobs that
turn out not to be needed are dropped again, best-ranked first; so no proper subset of the victims would do.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from slurm_soda.policies.engine.allocations import PreemptibleAllocations, RankedAllocation
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import FreeCapacity
from slurm_soda.policies.engine.placement import NodeAllocation, count_slots, split_over_nodes

NOBODY = -1


class VictimSearch:
    """Finds the victims of one waiting job after the other, best-ranked waiting job first.

    The price of a node is the best rank among the jobs that must leave it, worst-ranked first, until one node's part
    of a shape fits; the larger the better. For each number of GPUs there is a heap of nodes by their price, counting
    GPUs only. Prices there may be out of date, but never too low: claims only lower them, and a preemption, the one
    thing that can raise a price, enters its nodes anew. So the first node whose price holds good is the best one. A
    search costs O(log m) plus one visit to each node whose price has changed or which lacks CPUs or memory.
    """

    def __init__(self, holders: PreemptibleAllocations, free_capacity: FreeCapacity) -> None:
        self._holders = holders
        self._free_capacity = free_capacity
        self._heaps: dict[tuple[int, int, int], list[tuple[int, int]]] = {}

    def leave(self, row: int) -> None:
        """This job is preempted: its places are vacated."""
        pieces = self._holders.pieces(row)
        self._holders.remove(row)
        self._free_capacity.vacate(pieces)
        classes = self._free_capacity.classes
        for node, *_ in pieces:
            number = classes.of.item(node)
            for (partition, gpu_type, gpus), heap in self._heaps.items():
                if number in classes.matching(partition, gpu_type):
                    price = self._gpu_price(node, gpus)
                    if price != NOBODY:
                        heappush(heap, (-price, node))

    def find(self, shape: RequestShape, rank: int) -> tuple[list[NodeAllocation], list[int]] | None:
        """Places for a gang of this rank and the rows of the jobs that must leave them, worst-ranked first.

        Only jobs that rank behind ``rank`` leave. ``None``: not even if all of them left. The capacity that is vacated
        already must not do, and ranks must not fall from one call to the next.
        """
        found = self._find_even(shape, rank) if shape.is_even else None
        found = found or (self._find_split(shape, rank) if shape.units else None)
        if found is None:
            return None
        pieces, shares = found
        return pieces, self._needed(pieces, shares)

    def _find_even(self, shape: RequestShape, rank: int) -> tuple[list[NodeAllocation], list[RankedAllocation]] | None:
        spare = self._free_capacity.soon.fitting_nodes(shape) if shape.nodes > 1 else []
        prices = self._best_prices(shape, rank, spare)
        if prices is None:
            return None
        shares = [share for price, node in prices for share in self._holders.on_node[node] if share.rank >= price]
        nodes = [*spare, *(node for _, node in prices)]
        cpus_on = self._free_capacity.classes.cpus_on
        return [NodeAllocation(node, shape.gpus, cpus_on(shape, node), shape.memory_mib) for node in nodes], shares

    def _best_prices(self, shape: RequestShape, rank: int, spare: list[int]) -> list[tuple[int, int]] | None:
        """(price, node) of the best nodes besides ``spare`` for an even gang; ``None`` if there are not enough."""
        heap, wanted = self._heap(shape), shape.nodes - len(spare)
        classes = self._free_capacity.classes
        seen: set[int] = set()
        priced: list[tuple[int, int]] = []
        found: list[tuple[int, int]] = []
        back: list[tuple[int, int]] = []
        while len(found) < wanted and (heap or priced):
            if priced and (not heap or priced[0] <= heap[0]):
                price, node = heappop(priced)
                found.append((-price, node))
                continue
            _, node = heappop(heap)
            if node in seen:
                continue
            seen.add(node)
            cpus = classes.cpus_on(shape, node)
            gpu_price, price = self._prices(node, shape.gpus, cpus, shape.memory_mib)
            if gpu_price <= rank:
                continue  # never again: later jobs rank still further behind
            back.append((-gpu_price, node))
            if price > rank and node not in spare and not classes.bars(shape, node):
                heappush(priced, (-price, node))
        for item in back:
            heappush(heap, item)
        return found if len(found) == wanted else None

    def _heap(self, shape: RequestShape) -> list[tuple[int, int]]:
        key = (shape.partition, shape.gpu_type, shape.gpus)
        if key not in self._heaps:
            usable = self._free_capacity.classes.matching(shape.partition, shape.gpu_type)
            number = self._free_capacity.classes.of.data
            heap = [
                (-price, node)
                for node in self._holders.on_node
                if number[node] in usable and (price := self._gpu_price(node, shape.gpus)) != NOBODY
            ]
            heapify(heap)
            self._heaps[key] = heap
        return self._heaps[key]

    def _gpu_price(self, node: int, gpus: int) -> int:
        """Best rank among those who must leave a node, at least one of them, until so many GPUs are free."""
        gpus -= self._free_capacity.soon.on(node)[0]
        for rank, _, own_gpus, _, _ in self._holders.on_node[node]:
            gpus -= own_gpus
            if gpus <= 0:
                return rank
        return NOBODY

    def _prices(self, node: int, gpus: int, cpus: int, memory_mib: int) -> tuple[int, int]:
        """Best rank among those who must leave a node, at least one of them, until the GPUs fit, and until all fits."""
        free_gpus, free_cpus, free_memory_mib = self._free_capacity.soon.on(node)
        gpus, cpus, memory_mib = gpus - free_gpus, cpus - free_cpus, memory_mib - free_memory_mib
        gpu_price = NOBODY
        for rank, _, own_gpus, own_cpus, own_memory_mib in self._holders.on_node[node]:
            gpus, cpus, memory_mib = gpus - own_gpus, cpus - own_cpus, memory_mib - own_memory_mib
            if gpus <= 0:
                gpu_price = max(gpu_price, rank)
                if cpus <= 0 and memory_mib <= 0:
                    return gpu_price, rank
        return gpu_price, NOBODY

    def _find_split(self, shape: RequestShape, rank: int) -> tuple[list[NodeAllocation], list[RankedAllocation]] | None:
        """Preempt from the worst rank upwards until the gang fits in any split; a bisection over ranks."""
        usable = set(self._free_capacity.classes.matching(shape.partition, shape.gpu_type))
        shares = [
            (node, share)
            for node, on_node in self._holders.on_node.items()
            if self._free_capacity.classes.of.item(node) in usable
            for share in on_node
            if share.rank > rank
        ]
        ranks = sorted({share.rank for _, share in shares})
        low, high, best = 0, len(ranks) - 1, None
        while low <= high:
            middle = (low + high) // 2
            pieces = self._split_without(shape, [item for item in shares if item[1].rank >= ranks[middle]])
            if pieces is None:
                high = middle - 1
            else:
                low, best = middle + 1, (pieces, ranks[middle])
        if best is None:
            return None
        pieces, price = best
        nodes = {piece.node for piece in pieces}
        return pieces, [share for node, share in shares if node in nodes and share.rank >= price]

    def _split_without(
        self, shape: RequestShape, leaving: list[tuple[int, RankedAllocation]]
    ) -> list[NodeAllocation] | None:
        soon = self._free_capacity.soon
        columns = soon.gpus.copy(), soon.cpus.copy(), soon.memory_mib.copy()
        node = np.array([at for at, _ in leaving], dtype=np.int64)
        for column, part in zip(columns, (2, 3, 4), strict=True):
            np.add.at(column, node, np.array([share[part] for _, share in leaving], dtype=np.int64))
        classes = self._free_capacity.classes
        slots = np.where(classes.usable(shape, columns[1]), count_slots(shape, *columns), 0)
        return classes.with_whole_nodes(shape, split_over_nodes(shape, slots))

    def _needed(self, pieces: list[NodeAllocation], shares: list[RankedAllocation]) -> list[int]:
        """Rows of those who must leave, worst-ranked first; the best-ranked ones that need not are left out."""
        if len(shares) == 1:
            return [shares[0].row]
        soon = self._free_capacity.soon
        lacking = {
            node: [wanted - free for wanted, free in zip(amounts, soon.on(node), strict=True)]
            for node, *amounts in pieces
        }
        best_first = sorted({(share.rank, share.row) for share in shares})
        for _, row in best_first:
            self._change(lacking, row, -1)
        needed = []
        for _, row in best_first:
            self._change(lacking, row, 1)
            if any(lack > 0 for part in lacking.values() for lack in part):
                self._change(lacking, row, -1)
                needed.append(row)
        return needed[::-1]

    def _change(self, lacking: dict[int, list[int]], row: int, sign: int) -> None:
        for node, *amounts in self._holders.pieces(row):
            if node in lacking:
                lacking[node] = [lack + sign * amount for lack, amount in zip(lacking[node], amounts, strict=True)]

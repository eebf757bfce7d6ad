"""What each node has available for which jobs, and so which waiting jobs to try again after a change."""

from __future__ import annotations

from typing import NamedTuple

from slurm_soda.policies.pools.scheduling.pool_requests import PoolRequest, ServingOrder

NodeAmounts = tuple[int, int, int]
"""GPUs, cores and MiB."""


class AvailableOnNode(NamedTuple):
    """One node. A job for which no number that concerns it has grown fits no better than before."""

    cpus: int
    """Free now."""
    memory_mib: int
    """Free now."""
    own_cores: int
    """Free now, of what CPU jobs may hold without borrowing."""
    own_gpus: int
    """Of the small pool's own, not held by its jobs."""
    own_cpus: int
    """Of the small pool's own cores, not held by its jobs."""
    small_gpus: int
    """Once every job that is leaving, and every CPU job that borrows, has left; so the next two."""
    small_cpus: int
    small_mib: int
    large_gpus: int
    """Once borrowing small jobs have left too; so the next two."""
    large_cpus: int
    large_mib: int


class NodeAvailability:
    """What is available on all nodes, and on which of them more has become available.

    Attributes:
        grown: nodes that have more of something available than before; whoever reads it clears it.
    """

    def __init__(self, lent: list[bool]) -> None:
        """``lent``: nodes that the large pool lends to small jobs."""
        self._lent = lent
        self._of: dict[int, AvailableOnNode] = {}
        self.grown: set[int] = set()

    def set(
        self,
        node: int,
        now: NodeAmounts,
        soon: NodeAmounts,
        own: tuple[int, int, int],
        back: tuple[NodeAmounts, NodeAmounts],
    ) -> None:
        """A node changed.

        Args:
            now: what is free.
            soon: what will be free once every job that is leaving has left.
            own: cores that CPU jobs, GPUs and cores that small jobs may still take without borrowing.
            back: what is regained if borrowing CPU jobs, and if borrowing small jobs, are requeued.
        """
        (_, cores, cores_mib), (gpus, cpus, memory_mib) = back
        offer = AvailableOnNode(
            now[1],
            now[2],
            min(now[1], own[0]),
            own[1],
            own[2],
            soon[0],
            soon[1] + cores,
            soon[2] + cores_mib,
            soon[0] + gpus,
            soon[1] + cores + cpus,
            soon[2] + cores_mib + memory_mib,
        )
        before = self._of.get(node)
        self._of[node] = offer
        if before is None or any(map(int.__gt__, offer, before)):
            self.grown.add(node)

    def could_use(self, request: PoolRequest, node: int) -> bool:
        """Whether a job's part might fit on a node, aborts included. A yes may be wrong, a no never is."""
        offer, (gpus, cpus, memory_mib) = self._of[node], request.part
        if request.turn == ServingOrder.CPU:
            return offer.memory_mib >= memory_mib and (offer.cpus if request.anywhere else offer.own_cores) >= cpus
        if request.turn == ServingOrder.LARGE:
            return offer.large_gpus >= gpus and offer.large_cpus >= cpus and offer.large_mib >= memory_mib
        if offer.small_gpus < gpus or offer.small_cpus < cpus or offer.small_mib < memory_mib:
            return False
        return request.anywhere or not self._lent[node] or (offer.own_gpus >= gpus and offer.own_cpus >= cpus)

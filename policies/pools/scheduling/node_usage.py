"""What jobs hold on nodes of which a pool owns only a part, and which of them hold more than that."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from slurm_soda.policies.snapshot import IntColumn


class JobOnNode(NamedTuple):
    """What one job holds on one node. They are sorted: jobs that must not be aborted first, then by age."""

    may_be_requeued: bool
    start_s: float
    job_id: int
    handle: int
    """The caller's key of the job."""
    gpus: int
    cpus: int
    memory_mib: int


class PoolNodeUsage:
    """Jobs of one pool by node, up to date.

    In their order, jobs are within the share as long as all that they hold is at most what their pool owns of the node;
    the others borrow. So a borrower comes within the share by itself as older jobs end.
    """

    def __init__(self, own_gpus: IntColumn, own_cpus: IntColumn) -> None:
        self._own_gpus, self._own_cpus = own_gpus.tolist(), own_cpus.tolist()
        self._gpus, self._cpus = [0] * len(own_gpus), [0] * len(own_cpus)
        self._on: dict[int, list[JobOnNode]] = {}

    def __contains__(self, node: int) -> bool:
        return bool(self._on.get(node))

    def add(self, node: int, job: JobOnNode) -> None:
        """A job holds something on a node."""
        insort(self._on.setdefault(node, []), job)
        self._gpus[node] += job.gpus
        self._cpus[node] += job.cpus

    def remove(self, node: int, job: JobOnNode) -> None:
        """It holds it no more."""
        on_node = self._on[node]
        del on_node[bisect_left(on_node, job)]
        self._gpus[node] -= job.gpus
        self._cpus[node] -= job.cpus

    def left(self, node: int) -> tuple[int, int]:
        """GPUs and cores of the pool's own that its jobs do not hold; negative where they hold more."""
        return self._own_gpus[node] - self._gpus[node], self._own_cpus[node] - self._cpus[node]

    def borrowers(self, node: int) -> list[JobOnNode]:
        """Jobs that may be aborted and are not within the share, youngest first."""
        own_gpus, own_cpus = self._own_gpus[node], self._own_cpus[node]
        if self._gpus[node] <= own_gpus and self._cpus[node] <= own_cpus:
            return []
        found = []
        for job in self._on.get(node, ()):
            own_gpus -= job.gpus
            own_cpus -= job.cpus
            if job.may_be_requeued and (own_gpus < 0 or own_cpus < 0):
                found.append(job)
        return found[::-1]

"""Which running jobs give way to a service that needs a GPU: those submitted last (paper 004, Section V-D)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, split_memory_mib
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.free_places import FreePlaces
from slurm_soda.policies.services.instance_requests import InstanceRequest
from slurm_soda.policies.services.instances import own_jobs
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState
from slurm_soda.policies.waiting.overdue import find_protected


class GivingWay:
    """What becomes free once jobs have left: of those that leave already, and of those that are chosen here.

    Attributes:
        again_s: when one more job may give way, if an instance found too few; else infinite.
    """

    def __init__(self, snapshot: ClusterSnapshot, plan: Plan, places: FreePlaces, min_run_s: float) -> None:
        """``min_run_s``: nobody gives way before so long after his last start."""
        self._snapshot, self._places = snapshot, places
        jobs, nodes = snapshot.jobs, snapshot.nodes
        own = np.array(sorted(own_jobs(snapshot.services)), dtype=np.int64)
        going = np.array([one.job_id for one in plan.preempts], dtype=np.int64)
        leaves = (jobs.state == JobState.COMPLETING) | np.isin(jobs.job_id, going)
        may = (
            (jobs.state == JobState.RUNNING) & jobs.preemptible & (jobs.gpus > 0) & ~leaves & ~np.isin(jobs.job_id, own)
        )
        may &= ~find_protected(snapshot)
        settings = snapshot.services.settings
        yields = np.array([settings.may_go_first(name) for name in snapshot.partitions], dtype=np.bool_)
        may &= yields[jobs.partition]
        ripe_s = jobs.start_s + min_run_s
        self._ripens_s = float(ripe_s[may & (ripe_s > snapshot.now_s)].min(initial=np.inf))
        self.again_s = np.inf
        may &= snapshot.now_s >= ripe_s
        rows = np.flatnonzero(may)
        self._last_first: list[int] = rows[np.lexsort((-jobs.job_id[rows], -jobs.submit_s[rows]))].tolist()
        self._held = _held_by(snapshot, np.flatnonzero(may | leaves))
        self._leaving = [np.zeros(len(nodes), dtype=np.int64) for _ in range(3)]
        for row in np.flatnonzero(leaves).tolist():
            self._leave(row)

    def find(self, request: InstanceRequest, nodes: BoolColumn) -> list[int] | None:
        """Rows of the jobs that give way so that an instance fits on a node once they have left; they count as leaving.

        The instance counts as placed. Empty: it fits already, or will; ``None``: not even if all left that can be requeued.
        """
        node = self._fits(request, nodes)
        found: list[int] = []
        if node is None:
            found, node = self._last(request, nodes)
            if node is None:
                self.again_s = self._ripens_s
                return None
            for row in found:
                self._leave(row)
                self._last_first.remove(row)
        for column, part in zip(self._leaving, _amounts(request), strict=True):
            column[node] -= part
        return found

    def _free(self) -> tuple[IntColumn, ...]:
        free = (self._places.gpus, self._places.cores, self._places.memory_mib)
        return tuple(now + soon for now, soon in zip(free, self._leaving, strict=True))

    def _fits(self, request: InstanceRequest, nodes: BoolColumn) -> int | None:
        fits = nodes.copy()
        for column, part in zip(self._free(), _amounts(request), strict=True):
            fits &= column >= part
        rows = np.flatnonzero(fits)
        return int(rows[0]) if len(rows) else None

    def _last(self, request: InstanceRequest, nodes: BoolColumn) -> tuple[list[int], int | None]:
        """The job submitted last, or the last ones on one node, whose places are enough, and that node."""
        free = [column.tolist() for column in self._free()]
        asked, on_node = _amounts(request), dict[int, list[int]]()
        for row in self._last_first:
            for node, amounts in self._held[row]:
                if nodes[node]:
                    on_node.setdefault(node, []).append(row)
                    for column, part in zip(free, amounts, strict=True):
                        column[node] += part
                    if all(column[node] >= part for column, part in zip(free, asked, strict=True)):
                        return self._needed(on_node[node], node, [column[node] for column in free], asked), node
        return [], None

    def _needed(self, rows: Sequence[int], node: int, free: Sequence[int], asked: Sequence[int]) -> list[int]:
        """Those without whom it would not fit; who was submitted first is spared first."""
        left, needed = list(free), []
        for row in reversed(rows):
            held = next(amounts for at, amounts in self._held[row] if at == node)
            without = [have - part for have, part in zip(left, held, strict=True)]
            if all(have >= part for have, part in zip(without, asked, strict=True)):
                left = without
            else:
                needed.append(row)
        return needed[::-1]

    def _leave(self, row: int) -> None:
        for node, amounts in self._held[row]:
            for column, part in zip(self._leaving, amounts, strict=True):
                column[node] += part


def _amounts(request: InstanceRequest) -> tuple[int, int, int]:
    return request.gpus, request.cores, request.memory_mib


def _held_by(snapshot: ClusterSnapshot, rows: IntColumn) -> dict[int, list[tuple[int, tuple[int, int, int]]]]:
    """What jobs hold, by row: GPUs, cores and memory of each node."""
    jobs = snapshot.jobs
    owner, entry = find_allocation_entries(jobs, rows)
    columns = (jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], split_memory_mib(jobs, owner, entry))
    amounts = zip(*(column.tolist() for column in columns), strict=True)
    found: dict[int, list[tuple[int, tuple[int, int, int]]]] = {row: [] for row in rows.tolist()}
    for row, node, held in zip(owner.tolist(), jobs.alloc_node[entry].tolist(), amounts, strict=True):
        found[row].append((node, held))
    return found

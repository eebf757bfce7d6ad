"""Whether running jobs might move so that a waiting one fits, told from single jobs where run times are known."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.placement import FreeNodes
from slurm_soda.policies.session.ranking import SessionJob
from slurm_soda.policies.snapshot import NodeTable

_ROUNDING_S = 1e-6


class PossibleMoves:
    """Keeps when running jobs end, and what of each node those hold that can be preempted."""

    def __init__(self, free_nodes: FreeNodes, nodes: NodeTable, least_price_s: float) -> None:
        """``free_nodes``: kept up to date by others; ``least_price_s``: what a move costs at the least."""
        self._free_nodes, self._least_price_s = free_nodes, least_price_s
        self._total_gpus = max(int(nodes.gpus[nodes.usable].sum()), 1)
        self._movable = np.zeros((len(nodes), 3), dtype=np.int64)
        self._ends: list[tuple[float, int, SessionJob]] = []
        self._end_s: dict[int, float] = {}

    def started(self, job: SessionJob) -> None:
        """A job runs on its ``pieces``."""
        self._end_s[job.job_id] = end_s = job.resumes_s + job.remaining_s / job.speed_ratio
        insort(self._ends, (end_s, job.job_id, job))
        self._move(job, 1)

    def ended(self, job: SessionJob) -> None:
        """A job left its ``pieces``."""
        del self._ends[bisect_left(self._ends, (self._end_s.pop(job.job_id), job.job_id))]
        self._move(job, -1)

    def _move(self, job: SessionJob, sign: int) -> None:
        for node, *amounts in job.pieces if job.preemptible and job.gpus else ():
            self._movable[node] += sign * np.array(amounts)

    def may_gain(self, shape: RequestShape, waiting: int, now_s: float) -> bool:
        """Whether it might be worth it that others move for one of so many waiting jobs.

        They would have to leave it enough, and it would have to wait long enough otherwise. O(nodes) in numpy, and the
        jobs that end in the least time that is worth a move.
        """
        free, wanted = self._free_nodes, shape.nodes
        if np.count_nonzero(free.flag_fitting(shape, self._movable)) < wanted:
            return False
        gpu_ratio = shape.gpus * wanted / self._total_gpus
        until_s = now_s + self._least_price_s / (1.0 + (waiting - 1) * gpu_ratio) - _ROUNDING_S
        freed = np.zeros_like(self._movable)
        for end_s, _, job in self._ends:
            if end_s >= until_s:
                break
            for node, *amounts in job.pieces:
                freed[node] += amounts
        return int(np.count_nonzero(free.flag_fitting(shape, freed))) < wanted

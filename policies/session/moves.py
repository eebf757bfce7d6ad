"""Whether running jobs might move so that a waiting one fits, told from single jobs where run times are known."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.even_shares import count_shares, flag_fitting, limit_to_others
from slurm_soda.policies.engine.placement import FreeNodes
from slurm_soda.policies.session.ranking import Ranking, SessionJob
from slurm_soda.policies.snapshot import IntColumn, NodeTable

_ROUNDING_S = 1e-6


class PossibleMoves:
    """Keeps when running jobs end, and what of each node those hold that can be preempted, by their requests."""

    def __init__(
        self, free_nodes: FreeNodes, nodes: NodeTable, ranking: Ranking, shapes: Sequence[RequestShape]
    ) -> None:
        """``free_nodes``: kept up to date by others; ``shapes``: by :attr:`.SessionJob.shape`."""
        self._free_nodes, self._shapes, self._price_s = free_nodes, shapes, ranking.rules.least_move_price_s
        self._total_gpus = max(int(nodes.gpus[nodes.usable].sum()), 1)
        self._nothing = np.zeros((len(nodes), 3), dtype=np.int64)
        self._movable: dict[int, IntColumn] = {}
        """GPUs, CPUs, memory and jobs on each node, by request."""
        self._ends: list[tuple[float, int, SessionJob]] = []
        self._end_s: dict[int, float] = {}
        self._leaving: IntColumn | None = None

    def started(self, job: SessionJob) -> None:
        """A job runs on its ``pieces``."""
        self._end_s[job.job_id] = end_s = job.resumes_s + job.remaining_s / job.speed_ratio
        insort(self._ends, (end_s, job.job_id, job))
        self._change(job, 1)

    def ended(self, job: SessionJob) -> None:
        """A job left its ``pieces``."""
        del self._ends[bisect_left(self._ends, (self._end_s.pop(job.job_id), job.job_id))]
        self._change(job, -1)

    def _change(self, job: SessionJob, sign: int) -> None:
        if not (job.preemptible and job.gpus):
            return
        held = self._movable.setdefault(job.shape, np.zeros((len(self._nothing), 4), dtype=np.int64))
        for node, *amounts in job.pieces:
            held[node] += sign * np.array((*amounts, 1))
        if not held[:, 3].any():
            del self._movable[job.shape]

    def look_anew(self) -> None:
        """Something happened since the last time, or time has passed."""
        self._leaving = None

    def may_gain(self, shape: RequestShape, waiting: int, now_s: float) -> bool:
        """Whether it might be worth it that others move for one of so many waiting jobs.

        It would have to wait long enough otherwise, and they would have to leave it enough. O(jobs that end in the least
        time that is worth a move), and the first time O(nodes x requests of running jobs) in numpy.
        """
        gpu_ratio = shape.gpus * shape.nodes / self._total_gpus
        until_s = now_s + self._price_s / (1.0 + (waiting - 1) * gpu_ratio) - _ROUNDING_S
        freed = self._nothing.copy()
        for end_s, _, job in self._ends:
            if end_s >= until_s:
                break
            for node, *amounts in job.pieces:
                freed[node] += amounts
        if self._would_fit(shape, freed):
            return False
        if self._leaving is None:
            self._leaving = self._list_leaving()
        return self._would_fit(shape, self._leaving)

    def _would_fit(self, shape: RequestShape, more: IntColumn) -> bool:
        return int(np.count_nonzero(flag_fitting(self._free_nodes, shape, more))) >= shape.nodes

    def _list_leaving(self) -> IntColumn:
        """What those hold on each node who fit on others; shape (nodes, 3)."""
        leaving = self._nothing.copy()
        for number, held in self._movable.items():
            shape, most = self._shapes[number], held[:, 3]
            if shape.is_even:
                shares = count_shares(self._free_nodes, shape)
                most = np.minimum((shares.sum() - shares) // shape.nodes, most)
            # Those with one request hold the same.
            leaving += -(-held[:, :3] * most[:, None] // np.maximum(held[:, 3:], 1))
        return limit_to_others(self._free_nodes, leaving)

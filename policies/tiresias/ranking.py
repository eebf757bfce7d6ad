"""The orders of 2D-LAS and 2D-Gittins over single jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.session.ranking import INFINITY, RankingRules, RankKey, SessionJob
from slurm_soda.policies.tiresias.gittins import GittinsTable

_PER_GPU_S = 1e6
"""Jobs whose service differs by less than a part of so many have had as much: sums of many runs are not exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRanking:
    """2D-LAS: by queue, then the order within a queue, submit time, job id. Keys change only with the queue.

    Jobs without GPUs come after all others, by submit time.
    """

    thresholds_gpu_s: tuple[float, ...]
    min_run_s: float
    within_queue: str

    @property
    def rules(self) -> RankingRules:
        return RankingRules(preemptive=True, min_run_s=self.min_run_s)

    def waiting(self, job: SessionJob) -> RankKey:
        if not job.gpus:
            return (len(self.thresholds_gpu_s) + 1, job.submit_s, job.job_id)
        # A queue is left at its threshold; the sum of many runs may miss that by rounding.
        job.queue = max(job.queue, bisect_right(self.thresholds_gpu_s, job.attained_gpu_s))
        return (job.queue, *self._within(job, waits=True), job.submit_s, job.job_id)

    def running(self, job: SessionJob, now_s: float) -> RankKey:
        return self.frozen(job)

    def group(self, job: SessionJob) -> int:
        return 0

    def frozen(self, job: SessionJob) -> RankKey:
        return (job.queue, *self._within(job, waits=False), job.submit_s, job.job_id)

    def changes_s(self, job: SessionJob) -> float:
        if job.queue >= len(self.thresholds_gpu_s) or not job.gpus:
            return INFINITY
        return job.start_s + (self.thresholds_gpu_s[job.queue] - job.attained_gpu_s) / job.gpus

    def change(self, job: SessionJob) -> None:
        job.queue += 1

    def _within(self, job: SessionJob, *, waits: bool) -> RankKey:
        if self.within_queue == "small":
            return (job.gpus if job.queue else 0, waits, job.first_start_s)
        return (job.first_start_s, waits) if self.within_queue == "start" else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GittinsRanking(QueueRanking):
    """2D-Gittins: by queue, then index, which falls and rises while a job runs, then as 2D-LAS."""

    table: GittinsTable

    @property
    def rules(self) -> RankingRules:
        # In the last queue all indices are equal.
        return RankingRules(preemptive=True, min_run_s=self.min_run_s, volatile=len(self.thresholds_gpu_s))

    def group(self, job: SessionJob) -> int:
        return job.queue

    def waiting(self, job: SessionJob) -> RankKey:
        key = QueueRanking.waiting(self, job)
        return (key[0], self._rank(job, job.attained_gpu_s), *key[1:]) if job.gpus else key

    def running(self, job: SessionJob, now_s: float) -> RankKey:
        key = self.frozen(job)
        return (key[0], self._rank(job, job.attained_gpu_s + (now_s - job.start_s) * job.gpus), *key[1:])

    def in_order(self, group: int, jobs: Sequence[SessionJob], now_s: float) -> list[int]:
        attained_gpu_s = np.array([job.attained_gpu_s for job in jobs])
        ran_s = now_s - np.array([job.start_s for job in jobs])
        attained_gpu_s += ran_s * np.array([job.gpus for job in jobs], dtype=np.int64)
        index = self.table.indices(np.rint(attained_gpu_s * _PER_GPU_S) / _PER_GPU_S, self.thresholds_gpu_s[group])
        order: list[int] = np.argsort(-index, kind="stable").tolist()
        return order

    def _rank(self, job: SessionJob, attained_gpu_s: float) -> float:
        """The best index first; in the last queue all are equal."""
        if job.queue >= len(self.thresholds_gpu_s):
            return 0.0
        return -self.table.index(round(attained_gpu_s * _PER_GPU_S) / _PER_GPU_S, self.thresholds_gpu_s[job.queue])

"""The orders of 2D-LAS and 2D-Gittins over single jobs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from slurm_soda.policies.session.ranking import INFINITY, Key, Rules, SessionJob
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.policies.tiresias.gittins import gittins_index


@dataclass(frozen=True, slots=True)
class QueueRanking:
    """2D-LAS: by queue, then first start, running before waiting, submit time, job id; keys change with the queue."""

    thresholds_gpu_s: tuple[float, ...]
    min_run_s: float

    @property
    def rules(self) -> Rules:
        return Rules(preemptive=True, min_run_s=self.min_run_s)

    def waiting(self, job: SessionJob) -> Key:
        # A queue is left at its threshold; the sum of many runs may miss it by rounding.
        job.queue = max(job.queue, bisect_right(self.thresholds_gpu_s, job.attained_gpu_s))
        return (job.queue, job.first_start_s, True, job.submit_s, job.job_id)

    def running(self, job: SessionJob, now_s: float) -> Key:
        return self.frozen(job)

    def group(self, job: SessionJob) -> int:
        return 0

    def frozen(self, job: SessionJob) -> Key:
        return (job.queue, job.first_start_s, False, job.submit_s, job.job_id)

    def changes_s(self, job: SessionJob) -> float:
        if job.queue == len(self.thresholds_gpu_s):
            return INFINITY
        return job.start_s + (self.thresholds_gpu_s[job.queue] - job.attained_gpu_s) / job.gpus

    def change(self, job: SessionJob) -> None:
        job.queue += 1


@dataclass(frozen=True, slots=True, eq=False)
class GittinsRanking:
    """2D-Gittins: by queue, then index, which falls and rises while a job runs, then as 2D-LAS."""

    thresholds_gpu_s: tuple[float, ...]
    min_run_s: float
    samples_gpu_s: FloatColumn

    @property
    def rules(self) -> Rules:
        return Rules(preemptive=True, min_run_s=self.min_run_s, volatile=True)

    def waiting(self, job: SessionJob) -> Key:
        job.queue = max(job.queue, bisect_right(self.thresholds_gpu_s, job.attained_gpu_s))
        return (job.queue, -self._index(job, job.attained_gpu_s), job.first_start_s, True, job.submit_s, job.job_id)

    def running(self, job: SessionJob, now_s: float) -> Key:
        attained_gpu_s = job.attained_gpu_s + (now_s - job.start_s) * job.gpus
        return (job.queue, -self._index(job, attained_gpu_s), job.first_start_s, False, job.submit_s, job.job_id)

    def group(self, job: SessionJob) -> int:
        return 0

    def frozen(self, job: SessionJob) -> Key:
        return (job.queue, job.first_start_s, job.job_id)

    def changes_s(self, job: SessionJob) -> float:
        if job.queue == len(self.thresholds_gpu_s):
            return INFINITY
        return job.start_s + (self.thresholds_gpu_s[job.queue] - job.attained_gpu_s) / job.gpus

    def change(self, job: SessionJob) -> None:
        job.queue += 1

    def _index(self, job: SessionJob, attained_gpu_s: float) -> float:
        if job.queue == len(self.thresholds_gpu_s):
            return 0.0
        quantum = np.array([self.thresholds_gpu_s[job.queue]])
        return float(gittins_index(np.array([attained_gpu_s]), quantum, self.samples_gpu_s)[0])

"""What is left of each job's work, and what of it is lost when a run ends early."""

from __future__ import annotations

import math

import numpy as np

from slurm_soda.policies.session.ranking import SessionJob
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload

_MOST_FRUITLESS_PREEMPTIONS, _MOST_FRUITLESS_PER_JOB = 1000, 10
"""Preemptions on end without progress, in all and for each job, after which a run is taken to go on so for ever."""


class JobProgress:
    """Of all jobs, by row; policies are told ``remaining_s`` of the job, which falls by as much.

    Attributes:
        left_s: work left at full speed, as it was when the job's pace last changed, or when it started.
    """

    def __init__(self, workload: Workload, costs: Costs) -> None:
        self.left_s: list[float] = workload.run_s.tolist()
        self._saves = workload.preemptible.tolist()
        own_s = workload.saves_every_s
        self._every_s: list[float] = np.where(own_s > 0, own_s, costs.checkpoint_every_s).tolist()
        self._unasked: list[bool] = (own_s > 0).tolist()
        """Jobs that do not save their state when they are preempted."""
        self._begun: dict[int, tuple[float, float]] = {}
        """What was left, and what policies were told, of jobs when they started."""
        self._in_vain = 0
        """Preemptions since any job made progress."""

    def begin(self, job: SessionJob, row: int) -> None:
        """A job starts."""
        self._begun[row] = (self.left_s[row], job.remaining_s)

    def end(self, row: int) -> None:
        """A job ends."""
        self.left_s[row] = 0.0
        self._in_vain = 0

    def advance(self, job: SessionJob, row: int, now_s: float) -> float:
        """Count what a running job has done since its pace last changed, which is returned."""
        done_s = max(now_s - job.resumes_s, 0.0) * job.speed_ratio
        if done_s:
            self._in_vain = 0
        self.left_s[row] = max(self.left_s[row] - done_s, 0.0)
        job.remaining_s = max(job.remaining_s - done_s, 0.0)
        return done_s

    def save(self, job: SessionJob, row: int, now_s: float) -> float:
        """A run ends that was asked to save its state; what it did and did not save is lost, and returned.

        Raises:
            SimulatorError: jobs are preempted time and again before they make any progress.
        """
        lost_s = 0.0
        if self._unasked[row]:
            begun_s, _ = self._begun.get(row, (self.left_s[row], 0.0))
            lost_s = self.lose(job, row, now_s)
            self._in_vain = 0 if self.left_s[row] < begun_s else self._in_vain + 1
        elif not self.advance(job, row, now_s):
            self._in_vain += 1
        if self._in_vain > _MOST_FRUITLESS_PREEMPTIONS + _MOST_FRUITLESS_PER_JOB * len(self.left_s):
            raise SimulatorError(
                f"at {now_s:.0f} s jobs have been preempted {self._in_vain} times on end before they made any progress: "
                "a start costs more time than the policy leaves a job, or what it does is not saved; bound that with "
                "--max-preemptions, or give the policy a longer min_run_s or quantum_s if it has one, or take lower costs"
            )
        return lost_s

    def lose(self, job: SessionJob, row: int, now_s: float) -> float:
        """A run ends that could not: what it did since it last saved its state is lost, and returned.

        A job that can save its state did so each time that it had worked for ``checkpoint_every_s``, or its own
        ``saves_every_s``, in this run.
        """
        begun_s, told_s = self._begun.get(row, (self.left_s[row], job.remaining_s))
        done_s = begun_s - max(self.left_s[row] - max(now_s - job.resumes_s, 0.0) * job.speed_ratio, 0.0)
        kept_s, every_s = 0.0, self._every_s[row]
        if job.gpus and self._saves[row] and math.isfinite(every_s):
            kept_s = math.floor(done_s / every_s) * every_s
        self.left_s[row], job.remaining_s = begun_s - kept_s, max(told_s - kept_s, 0.0)
        return done_s - kept_s

"""Which jobs find GPUs and had better leave them to shorter ones, as they would hold them for long and cannot be stopped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.arithmetic.completion_times import schedule_at
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy, jobs_on_devices
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.sjf.long_jobs import LongJobs
from slurm_soda.policies.sharing.sjf.shorter_jobs import DAYTIME_PATIENCE, LEAST_LOSS, PATIENCE, ShorterJobs
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn


class WaitDecisions:
    """Whether a job waits for shorter ones, or for fewer long ones, in one decision of the policy.

    Args:
        snapshot: what is decided on.
        run_s: the whole run time of each job.
        verdict: what is known of each job before anybody is placed.
        gpu_occupancy: who is on which GPU by now.
        interference_view: how much those who share slow each other down.
        long_gpus: so many GPUs long jobs may hold by day; ``None``: it is not day.
        long_s: a job of more run time is long.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        run_s: FloatColumn,
        verdict: NDArray[np.int8],
        gpu_occupancy: GpuOccupancy,
        interference_view: InterferenceView,
        *,
        long_gpus: float | None,
        long_s: float,
    ) -> None:
        self._jobs, self._run_s = snapshot.jobs, run_s
        waits: BoolColumn = verdict == JobVerdict.WAIT
        runs: BoolColumn = verdict == JobVerdict.RUN
        self._long_jobs: LongJobs | None = None
        if long_gpus is not None:
            self._long_jobs = LongJobs(run_s, self._jobs.gpus, waits, runs, limit_gpus=long_gpus, long_s=long_s)
        sharing = jobs_on_devices(
            gpu_occupancy, np.flatnonzero([len(jobs_on) > 1 for jobs_on in gpu_occupancy.jobs_on])
        )
        waits_or_shares, lost_speed = waits.copy(), waits.astype(np.float64)
        waits_or_shares[sharing] = True
        lost_speed[sharing] = [1.0 - 1.0 / interference_view.pace(row) for row in sharing]
        patience, least_loss = (PATIENCE, 0.0) if long_gpus is None else (DAYTIME_PATIENCE, LEAST_LOSS)
        self._shorter_jobs = ShorterJobs(
            run_s, self._jobs.gpus, waits_or_shares, lost_speed, runs, patience=patience, least_loss=least_loss
        )

    def decide(self, row: int, free_gpus: int) -> SharingDecision | None:
        """Why a job that wants GPUs waits although so many are free; ``None``: it need not."""
        jobs, run_s, shorter_jobs, long_jobs = self._jobs, float(self._run_s[row]), self._shorter_jobs, self._long_jobs
        gpus, waited_s, work_s = int(jobs.gpus[row]), float(jobs.waited_s[row]), float(jobs.remaining_s[row])
        if shorter_jobs.should_leave_gpus(run_s, gpus, waited_s, free_gpus):
            wanted_gpus = shorter_jobs.wanted_gpus(run_s, gpus)
            return _wait_for_shorter_jobs(work_s, wanted_gpus, shorter_jobs.max_wait_s(run_s) - waited_s)
        if long_jobs is not None and long_jobs.should_wait(run_s, gpus, waited_s):
            left_s = long_jobs.max_wait_s(run_s) - waited_s
            return _wait_for_fewer_long_jobs(work_s, long_jobs.held_gpus(run_s), long_jobs.limit_gpus, left_s)
        return None

    def start(self, row: int) -> None:
        """A job starts on GPUs."""
        if self._long_jobs is not None:
            self._long_jobs.start(float(self._run_s[row]), int(self._jobs.gpus[row]))


def _wait_for_shorter_jobs(work_s: float, wanted_gpus: float, left_s: float) -> SharingDecision:
    """It waits so for ``left_s`` more at most; jobs of less than half its run time want so many GPUs."""
    why = f"it leaves GPUs that are free to jobs of less than half its run time, who want {wanted_gpus:,.0f}"
    return _waiting(work_s, left_s, why)


def _wait_for_fewer_long_jobs(work_s: float, held_gpus: int, limit_gpus: float, left_s: float) -> SharingDecision:
    """The same where long jobs hold so many GPUs, of those that they may while much shorter ones are there."""
    held = f"long jobs hold {held_gpus:,} GPUs, and may hold {int(limit_gpus):,} while much shorter ones are there"
    return _waiting(work_s, left_s, f"it waits for a quieter hour: {held}")


def _waiting(work_s: float, left_s: float, why: str) -> SharingDecision:
    reason = f"{why}; for at most {left_s:,.0f} s more"
    return SharingDecision(False, left_s, (work_s,), schedule_at(work_s, (), left_s), None, (), reason)

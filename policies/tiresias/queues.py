"""Which queue a job is in, and which jobs start over in the first one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.engine.preemption import find_next_preemptible_s
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable


def assign_queues(attained_gpu_s: FloatColumn, thresholds_gpu_s: tuple[float, ...]) -> IntColumn:
    """Queue of each job, 0 first: queue i holds attained service in [threshold i - 1, threshold i) (Section 3.2.3)."""
    return np.searchsorted(np.array(thresholds_gpu_s), attained_gpu_s, side="right").astype(np.int64)


def find_starving(jobs: JobTable, queue: IntColumn, promote_knob: float) -> BoolColumn:
    """Waiting jobs that start over: waited >= PROMOTEKNOB x executed (Section 3.2.3).

    Only jobs that have run and have left the first queue: the others have nothing to be reset.
    """
    if not np.isfinite(promote_knob):
        return np.zeros(len(jobs), dtype=np.bool_)
    waits = (jobs.state == JobState.PENDING) & (queue > 0) & (jobs.executed_s > 0)
    due: BoolColumn = waits & (jobs.waited_s >= promote_knob * jobs.executed_s)
    return due


def find_next_change_s(
    snapshot: ClusterSnapshot,
    verdict: NDArray[np.int8],
    queue: IntColumn,
    *,
    thresholds_gpu_s: tuple[float, ...],
    promote_knob: float,
    min_run_s: float,
) -> float:
    """Earliest time at which the order or the set of preemptible jobs changes by itself, once a plan is carried out.

    A running job reaches its queue's threshold, its minimum run time is over, or a waiting job is due for promotion.
    Infinite if no GPU job is left waiting: then nobody profits from a change.
    """
    jobs, now_s = snapshot.jobs, snapshot.now_s
    starts = verdict == JobVerdict.START
    running = (starts | (jobs.state == JobState.RUNNING)) & (verdict != JobVerdict.PREEMPT) & (jobs.gpus > 0)
    waiting = np.isin(verdict, (JobVerdict.WAIT, JobVerdict.WAIT_FOR_PREEMPTION, JobVerdict.PREEMPT)) & (jobs.gpus > 0)
    if not waiting.any():
        return float("inf")
    upper = np.append(np.array(thresholds_gpu_s), np.inf)[queue[running]]
    times = [now_s + (upper - jobs.attained_gpu_s[running]) / jobs.gpus[running]]
    if np.isfinite(promote_knob):
        aging = waiting & (queue > 0) & (jobs.executed_s > 0)
        times.append(now_s + promote_knob * jobs.executed_s[aging] - jobs.waited_s[aging])
    later = np.concatenate(times)
    own_s = float(later[later > now_s].min(initial=np.inf))
    return min(own_s, find_next_preemptible_s(snapshot, verdict, min_run_s))

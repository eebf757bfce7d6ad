"""Work that jobs have left by the progress that they tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from slurm_soda.daemon.learning.kept_words import KeptWords, ReportingRun
from slurm_soda.daemon.sharing.observed_pairs import LATE_S, own_alone_s
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.progress import RunId, progress_of_runs
from slurm_soda.daemon.store.tables.progress import JobProgressRow
from slurm_soda.policies.run_times.prediction_sources import IterationWork
from slurm_soda.policies.sharing.job_kinds import Estimate, Source
from slurm_soda.slurm_ext.client import SlurmJob


def work_left(
    store: Store,
    jobs: Iterable[SlurmJob],
    iteration_s: Callable[[SlurmJob], Estimate | None],
    now_s: float,
    words: KeptWords,
) -> dict[int, IterationWork]:
    """What is left of jobs by their own word, by id: of running ones from where they are by now, if they went on since they
    told; of requeued ones from where they saved their state, as what came after that is lost.

    Left out are jobs that say nothing, or say too little: how many iterations they have (by ``--soda-iterations``, else by
    what they tell), and a program that stands still, or should have ended, may be mistaken about what is left. Left out are
    also those that did not keep their word.

    Args:
        store: what they told.
        jobs: those that may have told something.
        iteration_s: time of an iteration alone, where a job has not been alone for long enough to show its own.
        now_s: the instant, Unix seconds.
        words: what jobs said so far, to which this is added.
    """
    runs: dict[RunId, SlurmJob] = {}
    for job in jobs:
        if job.gpus and job.state == "RUNNING":
            runs[RunId(job.job_id, job.restarts)] = job
        elif job.gpus and job.state == "PENDING" and job.restarts:
            runs[RunId(job.job_id, job.restarts - 1)] = job
    if not runs:
        return {}
    with store.read() as session:
        told, paces = progress_of_runs(session, runs)
        found: dict[int, IterationWork] = {}
        for run, row in told.items():
            job = runs[run]
            own_s = own_alone_s(paces.get(run.job_id, ()))
            each = iteration_s(job) if own_s is None else Estimate(own_s, 0.0, Source.MEASURED)
            left = _left(row, job, now_s, 0.0 if each is None else each.value)
            if left is None or each is None or each.value <= 0:
                continue
            said = ReportingRun(run.job_id, run.restart, row.first_s)
            if job.state == "PENDING" or math.isnan(job.start_s):
                kept = words.was_kept(said)
            else:
                kept = words.is_kept(said, now_s - job.start_s, left * each.plus_errors(2.0))
            if kept:
                found[run.job_id] = IterationWork(left, each)
    return found


def _left(told: JobProgressRow, job: SlurmJob, now_s: float, each_s: float) -> float | None:
    total = float(job.hints.iterations or told.total)
    if job.state == "PENDING":
        return total - min(max(told.saved, 0.0), total) if total else None
    done = told.iterations
    if done >= total or told.idle_s > LATE_S:
        return None
    # Readings are seconds old. It may stand still since: longer than any reading takes, nothing is counted in advance.
    since_s = min(max(now_s - told.at_s, 0.0), LATE_S)
    return max(total - done - since_s / each_s, 0.0) if each_s > 0 else total - done

"""What ended jobs teach: their run times at once, what else they showed once agents and accounting have reported."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import islice

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.job_kinds import traits_of_job, traits_of_past_job, traits_of_record
from slurm_soda.daemon.learning.observations import record_observations
from slurm_soda.daemon.learning.pair_observations import record_pair_observations
from slurm_soda.daemon.learning.spread_observations import record_spread_observations
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.jobs.cached_job import CachedJob, CachedRun
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.run_times.batch_prediction import BatchRunTimePredictor
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.slurm_ext.read.job_states import RUN_TIME_STATES
from slurm_soda.slurm_ext.read.past_jobs import PastJob

RECORDED_AFTER_S = 60.0
"""What a job showed is recorded once its end is so long ago: agents and accounting report later."""
LATE_RECORDS_S = 3600.0
"""They may report an end so much later."""
MAX_PAST_JOBS = 20_000
"""Newest ended jobs that a daemon learns from when it starts, and of which it remembers that they have taught; and"""
MAX_PAST_JOBS_PER_OWNER = 2000
"""of one owner: nobody's many jobs hide the past of others."""
MAX_RECORDED_PER_STEP = 2000
"""Ended jobs recorded in one step."""


class EndedJobs:
    """Each ended job teaches once; one object for each run of the daemon.

    What has taught is known by count, not by age: a clock that is set and set back makes nobody teach twice.
    """

    def __init__(self, store: Store, forecast: BatchRunTimePredictor) -> None:
        self._store, self._forecast = store, forecast
        self._older: Sequence[PastJob] = ()
        """Jobs of the time before the store that are to teach first, in the order in which they ended."""
        self.lacking = 0
        """So many more jobs of the past would teach, once those of the store have; and"""
        self.oldest_s = math.inf
        """when the first of these had ended."""
        self._recalled = False
        self._taught: dict[int, None] = {}
        """Keys of jobs that have taught, or were seen to teach nothing; of those that Slurm does not list the last ones."""
        self._leaving: set[int] = set()
        """Keys of jobs that are being preempted."""
        self._expected: list[CachedJob] = []
        """Jobs of the cache that had not taught at the last call, also those that had no key yet; and"""
        self._late: set[int] = set()
        """keys of those that have left it: accounting alone may know of their end, and tell it hours later."""
        self._recorded: set[int] = set()
        """Keys of recently ended jobs of which is recorded what they showed."""
        self._written: tuple[set[int], set[int]] = (set(), set())
        """The same once what was recorded last is committed, and the jobs that it was of."""

    def begin_anew(self, forecast: BatchRunTimePredictor, older: Sequence[PastJob]) -> None:
        """Teach another one, the past first: ``older`` jobs, in the order in which they ended, and then the store's.

        Jobs of which only accounting tells the end are still expected.
        """
        self._forecast, self._older = forecast, older
        self._taught, self._recalled = {}, False

    def teach(self, job_cache: JobCache, now_s: float, leaving: Collection[int] = ()) -> None:
        """Learn the run times of jobs that have ended since the last call; first of all, those of the past.

        Whoever decides what runs next on the GPUs of an ended job knows how long it ran. If it taught a minute late, those
        that go on would teach alone for that minute, and everything would look long.

        Args:
            job_cache: the jobs that Slurm lists.
            now_s: the present.
            leaving: ids of jobs that are being preempted. One that saves its state and exits has ended until it is requeued,
                and shows nothing by that; if it really has ended, it teaches once it is not among these any more.

        Complexity: O(jobs of the cache).
        """
        listed = {job.pk: job for job in job_cache.jobs.values() if job.pk is not None}
        left = (job_cache.jobs[job_id].pk for job_id in leaving if job_id in job_cache.jobs)
        self._leaving = {key for key in left if key is not None}
        if not self._recalled:
            self._recall(listed, now_s, job_cache.jobs.keys())
        fresh = []
        for key, job in listed.items():
            if key in self._taught:
                if job.end_s is None:  # one that was requeued after its end teaches its whole run time too
                    del self._taught[key]
            elif _shows_its_end(job) and key not in self._leaving:
                fresh.append(job)
        for job in sorted(fresh, key=lambda job: (job.end_s or 0.0, job.job_id)):
            if job.record is not None and job.pk is not None:
                self._teach(job.pk, traits_of_record(job.record), job.runs.values())
        gone = (job.pk for job in self._expected if job.pk is not None and job.pk not in listed)
        self._late = {*(key for key in self._late if key not in listed), *gone}
        self._expected = [job for job in job_cache.jobs.values() if job.pk not in self._taught]
        if len(self._taught) > MAX_PAST_JOBS + len(listed):
            for key in [key for key in self._taught if key not in listed][:-MAX_PAST_JOBS]:
                del self._taught[key]

    def record(
        self, session: Session, now_s: float, gpu_types: Mapping[str, str], most_gpus: Mapping[str, int]
    ) -> None:
        """Write down what jobs showed that ended a while ago; those that Slurm did not list at their end teach now.

        Before the past was recalled nobody teaches here, as these are part of it. Call :meth:`recorded` once the transaction
        is through.
        """
        until_s = now_s - RECORDED_AFTER_S
        ended = stored.ended_keys(session, now_s - LATE_RECORDS_S, until_s, MAX_RECORDED_PER_STEP)
        recent = set(ended) - self._leaving
        wanted = (recent - self._recorded).union(islice(self._late, MAX_RECORDED_PER_STEP))
        fresh = stored.jobs_by_end(session, sorted(wanted), until_s)
        runs = ended_runs_by_job(session, fresh)
        for job in fresh:
            if self._recalled and job.state in RUN_TIME_STATES:
                self._teach(job.id, traits_of_job(job), runs.get(job.id, ()))
            predicted = stored.run_time_prediction_of(session, job.id)
            if predicted is not None:
                predicted.actual_s = _run_s(runs.get(job.id, ()))
        record_observations(session, fresh, runs, gpu_types, now_s)
        record_pair_observations(session, fresh, gpu_types, now_s)
        record_spread_observations(session, fresh, runs, gpu_types=gpu_types, most_gpus=most_gpus, now_s=now_s)
        self._written = recent, {job.id for job in fresh}

    def recorded(self) -> None:
        """What :meth:`record` wrote is committed."""
        self._recorded, fresh = self._written
        self._late -= fresh

    def _recall(self, listed: Mapping[int, CachedJob], now_s: float, watched: Set[int]) -> None:
        """``watched``: ids of the jobs of the cache, also of those without a key yet; they teach at their end."""
        unsettled = {key for key, job in listed.items() if job.end_s is None or job.missing_runs} | self._leaving
        with self._store.read() as session:
            past_jobs = stored.past_run_times(session, RUN_TIME_STATES, now_s, MAX_PAST_JOBS, MAX_PAST_JOBS_PER_OWNER)
            newest = stored.ended_keys(session, 0.0, now_s, MAX_PAST_JOBS)
            taught = [*reversed(newest), *stored.ended_among(session, list(listed), now_s)]
            oldest_s = stored.oldest_end_s(session, RUN_TIME_STATES, now_s)
            watched |= stored.unended_job_ids(session) if self._older else set()
        # Slurm counts whole seconds: who has ended in the present one may be a job that sodad sees end.
        self.oldest_s = math.floor(now_s) if oldest_s is None else oldest_s
        self.lacking = MAX_PAST_JOBS - len(past_jobs)
        self._taught = dict.fromkeys(key for key in taught if key not in unsettled)
        self._recalled = True
        for job in self._older:
            if job.end_s < self.oldest_s and job.job_id not in watched:
                self._forecast.ended(traits_of_past_job(job), job.run_s)
        self._older = ()
        for past in past_jobs:
            if past.run_s > 0 and past.key not in unsettled:
                self._forecast.ended(traits_of_job(past), past.run_s)

    def _teach(self, key: int, traits: SubmissionTraits, runs: Collection[CachedRun | JobRun]) -> None:
        if key in self._taught:
            return
        self._taught[key] = None
        run_s = 0.0 if any(run.shared for run in runs) else _run_s(runs)
        if run_s > 0:
            self._forecast.ended(traits, run_s)


def _shows_its_end(job: CachedJob) -> bool:
    """It ended in a way to learn from, and all of its runs are known."""
    return job.end_s is not None and job.state in RUN_TIME_STATES and not job.missing_runs


def ended_runs_by_job(session: Session, jobs: Sequence[Job]) -> dict[int, list[JobRun]]:
    """Ended runs of jobs, by the key of the job."""
    found: dict[int, list[JobRun]] = {}
    for keys in split_list([job.id for job in jobs]):
        query = select(JobRun).where(JobRun.job_pk.in_(keys), JobRun.end_s.is_not(None))
        for run in session.scalars(query.order_by(JobRun.restart)):
            found.setdefault(run.job_pk, []).append(run)
    return found


def _run_s(runs: Iterable[CachedRun | JobRun]) -> float:
    return math.fsum(max(run.end_s - run.start_s, 0.0) for run in runs if run.end_s is not None)

"""Run times in the daemon: predicted for policies each cycle, learned from jobs as they end, written down for people.

Whatever goes wrong here is logged and changes nothing else: without predictions a policy has time limits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.learning.accounting_past import AccountingPast
from slurm_soda.daemon.learning.ended_jobs import MAX_PAST_JOBS_PER_OWNER, EndedJobs
from slurm_soda.daemon.learning.job_kinds import kind_of_listed_job, traits_of_record
from slurm_soda.daemon.learning.kept_words import KeptWords
from slurm_soda.daemon.learning.spread_observations import most_gpus_by_type
from slurm_soda.daemon.learning.stored_profiles import read_iteration_times
from slurm_soda.daemon.learning.work_left import work_left
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.kind_profiles import RunTimePrediction
from slurm_soda.policies.run_times.batch_prediction import MAX_KINDS, BatchRunTimePredictor
from slurm_soda.policies.run_times.learner import LearnedRunTime
from slurm_soda.policies.run_times.prediction_sources import (
    IterationWork,
    RunTimeLeft,
    RunTimeSource,
    predict_run_time_left,
)
from slurm_soda.policies.run_times.remaining_time_curve import EDGES_S
from slurm_soda.policies.run_times.standing_predictions import StandingPredictions
from slurm_soda.policies.sharing.job_kinds import Estimate
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.past_jobs import PastJob

LEARN_EVERY_S = 30.0
"""So often is written down what ended jobs showed, and what is expected of new ones."""
MAX_PREDICTIONS_PER_STEP = 500
"""Waiting jobs of which is written down what is expected, in one step."""
KEEP_OBSERVED_S = 365 * 86_400.0
_FORGET_EVERY_S = 3600.0
"""So often at most are kinds of jobs that are gone forgotten, all at once."""
_CURVE_POINTS = 4
"""Every so many edges of a life table are kept for people."""


@dataclass(slots=True)
class RunTimePredictor:
    """What is expected of jobs; one for each run of the daemon."""

    store: Store
    past: AccountingPast = field(default_factory=AccountingPast)
    """What accounting knows of the time before the store."""
    forecast: BatchRunTimePredictor = field(default_factory=BatchRunTimePredictor)
    _standing: StandingPredictions = field(default_factory=StandingPredictions)
    _profiles: KindProfiles | None = None
    _each: dict[tuple[object, ...], Estimate | None] = field(default_factory=dict)
    """What :attr:`_profiles` say of an iteration, by all that tells a kind: few differ among many jobs."""
    _numbers: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Kind of each listed job, with its submit time, by job id."""
    _told: set[int] = field(default_factory=set)
    """Keys of jobs of which something is written down."""
    _progress: Mapping[int, IterationWork] = field(default_factory=dict)
    """What is left of listed jobs by their own word."""
    _words: KeptWords = field(default_factory=KeptWords)
    _next_s: float = -math.inf
    _gpu_types: Mapping[str, str] = field(default_factory=dict)
    """By node."""
    _forget_s: float = -math.inf
    _failing: str = ""
    _ended_jobs: EndedJobs = field(init=False)

    def __post_init__(self) -> None:
        self._ended_jobs = EndedJobs(self.store, self.forecast)

    def fill(
        self,
        snapshot: ClusterSnapshot,
        jobs: Mapping[int, SlurmJob],
        job_cache: JobCache,
        leaving: Collection[int] = (),
    ) -> ClusterSnapshot:
        """The snapshot with run times left, where somebody knows; as it was where that fails.

        Jobs that are ``leaving`` are being preempted: if they have ended, they are about to be requeued.
        """
        try:
            if older := self.past.take():
                self._begin_anew(older)
            self._ended_jobs.teach(job_cache, snapshot.now_s, leaving)
            ended = self._ended_jobs
            self.past.begin(snapshot.now_s, ended.oldest_s, ended.lacking, MAX_PAST_JOBS_PER_OWNER)
            return self._with_run_times(snapshot, jobs, job_cache)
        except Exception as error:  # noqa: BLE001 - see above
            self._say("run-times-not-predicted", error)
            return snapshot

    def step(self, at: Instant, nodes: Sequence[SlurmNode], job_cache: JobCache) -> None:
        """Write down what ended jobs showed, and what is expected of new ones; now and then."""
        now_s = at.now_s
        if at.steady_s < self._next_s:
            return
        first = self._next_s == -math.inf
        self._next_s = at.steady_s + LEARN_EVERY_S
        if len(self.forecast) > MAX_KINDS // 2 and at.steady_s >= self._forget_s:
            self._forget_s = at.steady_s + _FORGET_EVERY_S
            self.forecast.forget()
            self._numbers.clear()
        try:
            gpu_types = self._gpu_types = {node.name: node.gpu_type for node in nodes if node.gpus}
            self._each = {}
            if first:
                with self.store.read() as session:
                    live = [job.pk for job in job_cache.jobs.values() if job.pk is not None]
                    self._told = stored.already_predicted(session, live)
            with self.store.write() as session:
                self._ended_jobs.record(session, now_s, gpu_types, most_gpus_by_type(nodes))
                told = self._tell(session, now_s, job_cache)
                if first:
                    stored.prune_observed(session, before_s=now_s - KEEP_OBSERVED_S)
            self._ended_jobs.recorded()
            self._told |= told
            with self.store.read() as session:
                self._profiles, self._each = read_iteration_times(session), {}
            self._failing = ""
        except Exception as error:  # noqa: BLE001 - see above
            self._say("not-learned", error)

    def run_time(self, job: CachedJob, now_s: float) -> RunTimeLeft | None:
        """What is left of a listed job, and by which source."""
        if job.record is None:
            return None
        number = self._number(job.record)
        return self._left(job, self.forecast.known(number), now_s)

    def _begin_anew(self, older: Sequence[PastJob]) -> None:
        """Learn all again with jobs of the time before the store: the latest ones, which count most, come last."""
        self.forecast, self._standing = BatchRunTimePredictor(), StandingPredictions()
        self._ended_jobs.begin_anew(self.forecast, older)
        self._numbers.clear()

    def _with_run_times(
        self, snapshot: ClusterSnapshot, jobs: Mapping[int, SlurmJob], job_cache: JobCache
    ) -> ClusterSnapshot:
        table, now_s = snapshot.jobs, snapshot.now_s
        ids = table.job_id.tolist()
        numbers = np.array([self._number(jobs[job_id]) for job_id in ids], dtype=np.int64)
        attained_s = np.array([_attained_s(job_cache.jobs[job_id], now_s) for job_id in ids], dtype=np.float64)
        alone = np.array(
            [not any(run.shared for run in job_cache.jobs[job_id].runs.values()) for job_id in ids], dtype=bool
        )
        self.forecast.observe(table.job_id, numbers, np.where(alone, attained_s, 0.0))
        predicted_s = self.forecast.remaining(numbers, attained_s)
        left_s = self._standing.remaining(table.job_id, attained_s, predicted_s)
        by_history = np.full(len(ids), True)
        listed = (jobs[job_id] for job_id in ids)
        self._progress = work_left(self.store, listed, self._iteration_s, now_s, self._words)
        for at, job_id in enumerate(ids):
            work, told = self._work(jobs[job_id]), self._progress.get(job_id)
            if work is not None and told is None and not attained_s[at]:  # all of it lies ahead
                left_s[at], by_history[at] = work.left * work.each.value, False
            elif work is not None or told is not None:
                predicted = predict_run_time_left(attained_s[at], math.inf, progress=told, iterations=work)
                left_s[at] = left_s[at] if predicted is None else predicted.left.value
                by_history[at] &= predicted is None
        # Each run has the whole limit for itself, although who was preempted goes on from its checkpoint.
        present_s = np.where(np.isnan(table.start_s), 0.0, now_s - table.start_s)
        left_s = np.minimum(left_s, np.maximum(table.time_limit_s - present_s, 1.0))
        self._forget(set(ids))
        expected = self.forecast.expected(numbers, attained_s)
        expected = replace(expected, kind=np.where(by_history, expected.kind, -1))
        return replace(snapshot, jobs=table.with_columns(remaining_s=left_s), run_times=expected)

    def _forget(self, listed: set[int]) -> None:
        self._words.forget(listed)
        if len(self._numbers) > 2 * len(listed) + 1000:
            self._numbers = {job_id: number for job_id, number in self._numbers.items() if job_id in listed}

    def _number(self, record: SlurmJob) -> int:
        submit_s, number = self._numbers.get(record.job_id, (math.nan, -1))
        if submit_s != record.submit_s:
            number = self.forecast.number(traits_of_record(record))
            self._numbers[record.job_id] = (record.submit_s, number)
        return number

    def _work(self, record: SlurmJob) -> IterationWork | None:
        if not record.hints.iterations:
            return None
        each = self._iteration_s(record)
        return None if each is None or each.value <= 0 else IterationWork(record.hints.iterations, each)

    def _iteration_s(self, record: SlurmJob) -> Estimate | None:
        hints = record.hints
        told = (record.user, hints.model, hints.batch_size, record.gpu_type, record.node_names, record.gpus)
        if told not in self._each:
            kind = kind_of_listed_job(record, self._gpu_types)
            known = None if kind is None or self._profiles is None else self._profiles.of_owner(record.user)
            self._each[told] = None if kind is None or known is None else known.iteration_s(kind)
        return self._each[told]

    def _left(self, job: CachedJob, learnt: LearnedRunTime, now_s: float) -> RunTimeLeft | None:
        assert job.record is not None
        attained_s, present = _attained_s(job, now_s), job.runs.get(job.restart)
        here_s = now_s - present.start_s if present is not None and present.end_s is None else 0.0
        limit_s = job.record.time_limit_s + attained_s - here_s
        told = self._progress.get(job.record.job_id)
        return predict_run_time_left(
            attained_s, limit_s, progress=told, iterations=self._work(job.record), learnt=learnt
        )

    def _tell(self, session: Session, now_s: float, job_cache: JobCache) -> set[int]:
        """Write down what is expected of jobs that came; their keys."""
        waiting = (job for job in job_cache.jobs.values() if job.pk is not None and job.end_s is None)
        self._told &= {job.pk for job in job_cache.jobs.values() if job.pk is not None}
        fresh = list(islice((job for job in waiting if job.pk not in self._told), MAX_PREDICTIONS_PER_STEP))
        written = stored.already_predicted(session, [job.pk for job in fresh if job.pk is not None])
        for job in fresh:
            assert job.pk is not None
            if job.record is None or job.pk in written:
                continue
            learnt = self.forecast.known(self._number(job.record))
            predicted = self._left(job, learnt, now_s)
            if predicted is not None:
                session.add(_prediction_row(job.pk, predicted, learnt, _attained_s(job, now_s), now_s))
        return {job.pk for job in fresh if job.pk is not None}

    def _say(self, event: str, error: Exception) -> None:
        if self._failing != repr(error):
            self._failing = repr(error)
            log(logging.WARNING, event, error=f"{type(error).__name__}: {error}")
            LOGGER.debug("unexpected", exc_info=True)


def _attained_s(job: CachedJob, now_s: float) -> float:
    """All of its run time, whatever was forgiven: what is left depends on the work that is done."""
    if not job.runs:
        return 0.0
    return math.fsum(max((now_s if run.end_s is None else run.end_s) - run.start_s, 0.0) for run in job.runs.values())


def _prediction_row(
    job_pk: int, predicted: RunTimeLeft, learnt: LearnedRunTime, attained_s: float, now_s: float
) -> RunTimePrediction:
    error = predicted.left.error
    return RunTimePrediction(
        job_pk=job_pk,
        at_s=now_s,
        predicted_by=predicted.by.value,
        run_s=attained_s + predicted.left.value,
        error_s=error if math.isfinite(error) else None,
        jobs=predicted.jobs,
        basis=predicted.basis,
        curve=list(_curve_points(learnt)) if predicted.by is RunTimeSource.HISTORY else [],
        actual_s=None,
    )


def _curve_points(learnt: LearnedRunTime) -> Iterator[list[float]]:
    """Some points of a life table, rounded: people read no more of it."""
    for at in range(0, len(EDGES_S), _CURVE_POINTS):
        yield [round(float(column[at]), 1) for column in (EDGES_S, learnt.curve.total_s, learnt.curve.error_s)]

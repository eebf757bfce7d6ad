"""What preemptions cost, in the daemon: observed as preempted jobs go on, and told to policies of each job.

Whatever goes wrong here is logged and changes nothing else: without it a policy has its own number.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.learning.job_kinds import traits_of_record
from slurm_soda.daemon.learning.run_time_predictions import LEARN_EVERY_S
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.sharing.observed_pairs import own_alone_s
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.observed_preemptions import observed_runs, past_preemptions, preempted_runs
from slurm_soda.daemon.store.progress import RunId, newest_progress, progress_of_runs
from slurm_soda.daemon.store.queries import CLOCK_SLACK_S
from slurm_soda.daemon.store.tables.kind_profiles import ObservedPreemption
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.policies.preemption_costs.learner import OwnersKind, PreemptionCostLearner, kind_of
from slurm_soda.policies.preemption_costs.observed_preemption import (
    NextRun,
    PreemptionCost,
    StoppedRun,
    measure_preemption,
)
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState
from slurm_soda.slurm_ext.client import SlurmJob

MAX_PAST = 20_000
"""Newest observations that a daemon learns from when it starts."""
MAX_OBSERVED_PER_STEP = 500
"""Runs looked at in one step."""

RunKey = tuple[int, int]
"""Key of a job, and restart count of a run that was preempted."""


@dataclass(slots=True)
class PreemptionCostReader:
    """What is known of the cost of preemptions; one for each run of the daemon."""

    store: Store
    learner: PreemptionCostLearner = field(default_factory=PreemptionCostLearner)
    _judged: set[RunKey] = field(default_factory=set)
    """Runs of which there is no more to learn."""
    _kinds: dict[tuple[str, str | None, str], OwnersKind] = field(default_factory=dict)
    """Of the jobs of the last snapshot, by owner, model and name."""
    _next_s: float = -math.inf
    _failing: str = ""

    def fill(self, snapshot: ClusterSnapshot, jobs: Mapping[int, SlurmJob]) -> ClusterSnapshot:
        """The snapshot with what preempting its jobs costs, where something was learned; as it was where that fails."""
        if not self.learner.observed:
            return snapshot
        try:
            return self._with_costs(snapshot, jobs)
        except Exception as error:  # noqa: BLE001 - see above
            self._say("preemption-costs-not-told", error)
            return snapshot

    def step(self, at: Instant, job_cache: JobCache) -> None:
        """Observe preempted jobs that have gone on; now and then."""
        if at.steady_s < self._next_s:
            return
        first = self._next_s == -math.inf
        self._next_s = at.steady_s + LEARN_EVERY_S
        try:
            if first:
                with self.store.read() as session:
                    self._recall(session)
            self._observe(job_cache)
            self._failing = ""
        except Exception as error:  # noqa: BLE001 - see above
            self._say("preemption-costs-not-learned", error)

    def _recall(self, session: Session) -> None:
        for past in past_preemptions(session, MAX_PAST):
            traits = SubmissionTraits(past.user, 0, name=past.name, model=past.model)
            self.learner.learn(traits, PreemptionCost(past.overhead_s, past.lost_s))

    def _observe(self, job_cache: JobCache) -> None:
        """Runs that were preempted, whose jobs run again and tell their progress."""
        going = dict(_went_on(job_cache))
        self._judged &= going.keys()
        looked = dict(
            islice(((key, job) for key, job in going.items() if key not in self._judged), MAX_OBSERVED_PER_STEP)
        )
        if not looked:
            return
        with self.store.read() as session:
            told = _ToldRuns.read(session, looked)
        rows: list[ObservedPreemption] = []
        for (job_pk, restart), job in looked.items():
            if told.may_show((job_pk, restart), job) and not told.is_enough(job):
                continue
            self._judged.add((job_pk, restart))
            cost = told.cost_of(job) if told.may_show((job_pk, restart), job) else None
            if cost is not None and job.record is not None:
                seen = {"at_s": told.after[RunId(job.job_id, job.restart)].began_s, **cost._asdict()}
                model = job.record.hints.model or ""
                rows.append(ObservedPreemption(job_pk=job_pk, restart=restart, model=model, **seen))
                self.learner.learn(traits_of_record(job.record), cost)
        if rows:
            with self.store.write() as session:
                session.add_all(rows)

    def _with_costs(self, snapshot: ClusterSnapshot, jobs: Mapping[int, SlurmJob]) -> ClusterSnapshot:
        table = snapshot.jobs
        told = (table.gpus > 0) & table.preemptible
        kinds: dict[OwnersKind, int] = {}
        of_row: IntColumn = np.full(len(table), -1, dtype=np.int64)
        before, self._kinds = self._kinds, {}
        for row in np.flatnonzero(told).tolist():
            record = jobs[table.job_id.item(row)]
            key = record.user, record.hints.model, record.name
            kind = self._kinds[key] = before.get(key) or kind_of(traits_of_record(record))
            of_row[row] = kinds.setdefault(kind, len(kinds))
        runs = told & (table.state == JobState.RUNNING)
        since_start_s = np.where(runs, np.maximum(snapshot.now_s - table.start_s, 0.0), 0.0)
        since_saved_s = self._since_saved_s(snapshot, jobs, list(kinds), np.where(runs, of_row, -1))
        return replace(snapshot, preemption_costs=self.learner.costs(list(kinds), of_row, since_saved_s, since_start_s))

    def _since_saved_s(
        self, snapshot: ClusterSnapshot, jobs: Mapping[int, SlurmJob], kinds: list[OwnersKind], of_row: IntColumn
    ) -> FloatColumn:
        """Time since running jobs last saved their state, as they tell; asked of those alone that may lose work."""
        found = np.full(len(of_row), np.nan)
        loses = np.array([*(self.learner.known(kind).may_lose for kind in kinds), False])[of_row]
        rows = {int(snapshot.jobs.job_id[row]): row for row in np.flatnonzero(loses).tolist()}
        if not rows:
            return found
        with self.store.read() as session:
            told = newest_progress(session, [RunId(job_id, jobs[job_id].restarts) for job_id in rows])
        for run, progress in told.items():
            start_s = float(snapshot.jobs.start_s[rows[run.job_id]])
            if progress.first_s >= start_s - CLOCK_SLACK_S and progress.saved >= 0:
                saved_s = start_s if progress.saved_s is None else progress.saved_s
                found[rows[run.job_id]] = max(snapshot.now_s - saved_s, 0.0)
        return found

    def _say(self, event: str, error: Exception) -> None:
        if self._failing != repr(error):
            self._failing = repr(error)
            log(logging.WARNING, event, error=f"{type(error).__name__}: {error}")
            LOGGER.debug("unexpected", exc_info=True)


@dataclass(frozen=True, slots=True)
class _ToldRuns:
    """What stopped runs and those after them told, of jobs that went on."""

    known: set[RunKey]
    """Runs whose preemption was observed before."""
    before: Mapping[RunId, JobProgressRow]
    """By runs that sodad stopped."""
    after: Mapping[RunId, JobProgressRow]
    paces: Mapping[int, Sequence[JobPaceRow]]
    """By job id."""

    @classmethod
    def read(cls, session: Session, jobs: Mapping[RunKey, CachedJob]) -> _ToldRuns:
        """From the store."""
        stopped = {RunId(job.job_id, restart): job.submit_s for (_, restart), job in jobs.items()}
        submit_s = {run.job_id: of_s for run, of_s in stopped.items()}
        before = newest_progress(session, preempted_runs(session, submit_s, stopped))
        after, paces = progress_of_runs(session, [RunId(run.job_id, run.restart + 1) for run in before])
        return cls(observed_runs(session, [job_pk for job_pk, _ in jobs]), before, after, paces)

    def may_show(self, key: RunKey, job: CachedJob) -> bool:
        """Whether this run may yet show what its preemption cost."""
        return key not in self.known and RunId(job.job_id, key[1]) in self.before

    def is_enough(self, job: CachedJob) -> bool:
        """Whether its present run has told enough."""
        return RunId(job.job_id, job.restart) in self.after and self._iteration_s(job) is not None

    def cost_of(self, job: CachedJob) -> PreemptionCost | None:
        """What the last preemption of a job cost that has told enough; ``None`` where what it tells contradicts itself."""
        stopped, went_on = self.before[RunId(job.job_id, job.restart - 1)], self.after[RunId(job.job_id, job.restart)]
        old, new = job.runs[job.restart - 1], job.runs[job.restart]
        return measure_preemption(
            StoppedRun(old.start_s, math.nan if old.end_s is None else old.end_s, stopped.at_s, stopped.iterations),
            NextRun(new.start_s, went_on.began_s, went_on.began_iterations),
            self._iteration_s(job) or math.nan,
        )

    def _iteration_s(self, job: CachedJob) -> float | None:
        return own_alone_s(self.paces.get(job.job_id, ()))


def _went_on(job_cache: JobCache) -> Iterator[tuple[RunKey, CachedJob]]:
    """GPU jobs that were requeued and run again, by the run before; alone on their GPUs in both."""
    for job in job_cache.jobs.values():
        if job.pk is None or job.record is None or job.record.state != "RUNNING" or not job.record.gpus:
            continue
        old, new = job.runs.get(job.restart - 1), job.runs.get(job.restart)
        if old is not None and new is not None and old.end_s is not None and not (old.shared or new.shared):
            yield (job.pk, old.restart), job

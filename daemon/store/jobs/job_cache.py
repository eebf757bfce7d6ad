"""The jobs that Slurm lists, remembered: loaded once, compared in memory, and only what changed written back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.jobs.cached_job import (
    CachedJob,
    CachedRun,
    is_same_job,
    record_fingerprint,
    update_from_record,
)
from slurm_soda.daemon.store.jobs.inherited_service import CANCELLED, inherit_services
from slurm_soda.daemon.store.jobs.job_rows import cached_job, cached_run, save_jobs, save_runs
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun, NodeEvent
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.snapshot import JobRunHistory

MISSING_RUN_TIMEOUT_S = 3600.0
"""For this long an agent's late records may still tell of a run that nobody saw."""

UNKNOWN_END_STATE = "UNKNOWN"
"""State of a job that Slurm no longer lists and whose end nobody saw."""


class JobCache:
    """Every job that Slurm lists or that accounting still owes an answer about, by job id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jobs: dict[int, CachedJob] = {}
        self._past: dict[int, JobRunHistory] = {}
        self._replaced: list[CachedJob] = []
        """Jobs no longer listed, kept until they are written."""
        self._last_reading_s = float("-inf")
        """Instant of the last reading."""
        self._missing_run_since_s: dict[int, float] = {}
        """Jobs with runs that nobody saw, and since when we know."""
        with store.read() as session:
            unfinished = or_(Job.end_s.is_(None), Job.accounted.is_(False))
            self._adopt(session, session.scalars(select(Job).where(unfinished).order_by(Job.submit_s)).all())

    def observe(self, records: Sequence[SlurmJob], now_s: float) -> None:
        """Take in one reading of all jobs."""
        self._recall([record.job_id for record in records if record.job_id not in self.jobs])
        changed_users: set[str] = set()
        for record in records:
            job = self.jobs.get(record.job_id)
            if job is not None and job.seen == record_fingerprint(record):
                continue
            if job is None or not is_same_job(job, record):
                if job is not None:
                    mark_end_unknown(job, now_s)
                    self._replaced.append(job)
                job = self.jobs[record.job_id] = CachedJob(record.job_id, record.submit_s)
            waited = job.record is None or job.record.state == "PENDING" != record.state
            update_from_record(job, record, now_s, self._last_reading_s)
            if waited or record.state == CANCELLED:
                changed_users.add(record.user)
            if job.missing_runs:
                self._missing_run_since_s.setdefault(job.job_id, now_s)
            self._refresh(job)
        self._last_reading_s = now_s
        self._fill_missing_runs(now_s)
        if changed_users:
            with self._store.read() as session:
                for job in inherit_services(session, self.jobs.values(), changed_users, now_s):
                    self._refresh(job)

    def past(self) -> Mapping[int, JobRunHistory]:
        """What snapshots need, only of jobs that have a past."""
        return self._past

    def submit_s(self, job_id: int) -> float:
        """First submission of a listed job.

        Raises:
            KeyError: no such job.
        """
        return self.jobs[job_id].submit_s

    def first_submit_s(self, record: SlurmJob) -> float:
        """First submission of a job as Slurm lists it now, also of one that came since the last reading."""
        job = self.jobs.get(record.job_id)
        return job.submit_s if job is not None and is_same_job(job, record) else record.submit_s

    def promote(self, job_ids: Iterable[int], now_s: float) -> None:
        """Forgive the service of these jobs."""
        for job_id in job_ids:
            self.jobs[job_id].promote(now_s)
            self._refresh(self.jobs[job_id])

    def mark_shared(self, job_ids: Iterable[int]) -> None:
        """The present runs of these jobs have others on their GPUs."""
        for job_id in job_ids:
            self.jobs[job_id].mark_shared()

    def count_preemption(self, job_id: int) -> None:
        """A preemption of ours took a job's GPUs."""
        if job := self.jobs.get(job_id):
            job.preemptions, job.dirty = job.preemptions + 1, True
            self._refresh(job)

    def save(self, session: Session, now_s: float) -> int:
        """Write what changed; gives the number of rows. Call :meth:`saved` once the transaction is through."""
        dirty = [job for job in (*self._replaced, *self.jobs.values()) if job.dirty]
        return save_jobs(session, dirty, now_s) + save_runs(session, dirty)

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        for job in (*self._replaced, *self.jobs.values()):
            if job.dirty:
                job.dirty = False
                for run in job.runs.values():
                    run.dirty = False
        self._replaced.clear()

    def unaccounted(self, listed: set[int]) -> list[CachedJob]:
        """Jobs that accounting must complete: ended ones, and those that left Slurm's list before anybody saw their end."""
        return [
            job
            for job_id, job in self.jobs.items()
            if not job.accounted and (job.end_s is not None or job_id not in listed)
        ]

    def forget(self, listed: set[int], now_s: float, *, accounting: bool) -> None:
        """Let go of jobs that Slurm no longer lists, once nothing more can be learned about them."""
        for job_id in [job_id for job_id in self.jobs if job_id not in listed]:
            job = self.jobs[job_id]
            if not accounting and not job.accounted:
                mark_end_unknown(job, now_s)
            if job.accounted or not accounting:
                self._replaced.append(self.jobs.pop(job_id))
                self._past.pop(job_id, None)

    def _refresh(self, job: CachedJob) -> None:
        has_past = job.runs or job.restart or job.promotions or job.preemptions or job.inherited_s
        if (has_past or job.waited_since_s is not None) and job.end_s is None:
            self._past[job.job_id] = job.past()
        else:
            self._past.pop(job.job_id, None)

    def _recall(self, job_ids: Sequence[int]) -> None:
        """Jobs that came back into Slurm's list, or that ended while nobody looked, may be known to the store."""
        if not job_ids:
            return
        with self._store.read() as session:
            for part in split_list(job_ids):
                rows = session.scalars(select(Job).where(Job.job_id.in_(part)).order_by(Job.submit_s))
                self._adopt(session, rows.all())

    def _adopt(self, session: Session, rows: Sequence[Job]) -> None:
        """Take rows of the store into memory; of several with one id the newest stays."""
        by_pk = {row.id: cached_job(row) for row in rows}
        for part in split_list(list(by_pk)):
            for run in session.scalars(select(JobRun).where(JobRun.job_pk.in_(part))):
                by_pk[run.job_pk].runs[run.restart] = cached_run(run)
        for job in by_pk.values():
            job.restart = max(job.runs, default=0)
            self.jobs[job.job_id] = job
            self._refresh(job)

    def _fill_missing_runs(self, now_s: float) -> None:
        """Runs that began and ended while nobody looked, from what prolog and epilog recorded."""
        if not self._missing_run_since_s:
            return
        with self._store.read() as session:
            for job_id, since_s in list(self._missing_run_since_s.items()):
                job = self.jobs.get(job_id)
                if job is not None:
                    _fill_missing_runs(job, session.scalars(select(NodeEvent).where(NodeEvent.job_id == job_id)).all())
                    self._refresh(job)
                if job is None or not job.missing_runs or now_s - since_s > MISSING_RUN_TIMEOUT_S:
                    del self._missing_run_since_s[job_id]


def mark_end_unknown(job: CachedJob, now_s: float) -> None:
    """The job is gone and nobody can say how it ended."""
    job.accounted, job.dirty = True, True
    if job.end_s is None:
        job.end_s, job.state = now_s, UNKNOWN_END_STATE
        for run in job.runs.values():
            if run.end_s is None:
                run.end_s, run.dirty = now_s, True


def _fill_missing_runs(job: CachedJob, events: Sequence[NodeEvent]) -> None:
    for restart in job.missing_runs:
        opened = [e for e in events if e.restart == restart and e.kind == "open" and e.at_s >= job.submit_s - 1]
        closed = [e.at_s for e in events if e.restart == restart and e.kind == "close" and e.at_s >= job.submit_s - 1]
        if opened and closed:
            start_s, gpus = min(e.at_s for e in opened), sum(len(e.record.get("gpus", ())) for e in opened)
            names = ",".join(sorted({e.node for e in opened}))
            job.add_run(CachedRun(restart, start_s, max(*closed, start_s), names, gpus))

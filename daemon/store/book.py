"""The jobs that Slurm lists, remembered: loaded once, compared in memory, and only what changed written back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.job_rows import remembered_job, remembered_run, save_jobs, save_runs
from slurm_soda.daemon.store.memory import RememberedJob, RememberedRun, fingerprint, observe, same_job
from slurm_soda.daemon.store.schema import Job, NodeEvent, Run
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.snapshot import JobMemory

_IDS_PER_STATEMENT = 500

GAP_PATIENCE_S = 3600.0
"""For this long an agent's late records may still tell of a run that nobody saw."""

VANISHED = "UNKNOWN"
"""State of a job that Slurm no longer lists and whose end nobody saw."""


class JobBook:
    """Every job that Slurm lists or that accounting still owes an answer about, by job id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jobs: dict[int, RememberedJob] = {}
        self._past: dict[int, JobMemory] = {}
        self._replaced: list[RememberedJob] = []
        """Jobs no longer listed, kept until they are written."""
        self._looked_s = float("-inf")
        """Instant of the last reading."""
        self._gaps: dict[int, float] = {}
        """Jobs with runs that nobody saw, and since when we know."""
        with store.read() as session:
            unfinished = or_(Job.end_s.is_(None), Job.accounted.is_(False))
            self._adopt(session, session.scalars(select(Job).where(unfinished).order_by(Job.submit_s)).all())

    def observe(self, records: Sequence[JobRecord], now_s: float) -> None:
        """Take in one reading of all jobs."""
        self._recall([record.job_id for record in records if record.job_id not in self.jobs])
        for record in records:
            job = self.jobs.get(record.job_id)
            if job is not None and job.seen == fingerprint(record):
                continue
            if job is None or not same_job(job, record):
                if job is not None:
                    give_up(job, now_s)
                    self._replaced.append(job)
                job = self.jobs[record.job_id] = RememberedJob(record.job_id, record.submit_s)
            observe(job, record, now_s, self._looked_s)
            if job.missing_runs:
                self._gaps.setdefault(job.job_id, now_s)
            self._refresh(job)
        self._looked_s = now_s
        self._fill_missing_runs(now_s)

    def past(self) -> Mapping[int, JobMemory]:
        """What snapshots need, only of jobs that have a past."""
        return self._past

    def submit_s(self, job_id: int) -> float:
        """First submission of a listed job.

        Raises:
            KeyError: no such job.
        """
        return self.jobs[job_id].submit_s

    def promote(self, job_ids: Iterable[int], now_s: float) -> None:
        """Forgive the service of these jobs."""
        for job_id in job_ids:
            self.jobs[job_id].promote(now_s)
            self._refresh(self.jobs[job_id])

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

    def unaccounted(self, listed: set[int]) -> list[RememberedJob]:
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
                give_up(job, now_s)
            if job.accounted or not accounting:
                self._replaced.append(self.jobs.pop(job_id))
                self._past.pop(job_id, None)

    def _refresh(self, job: RememberedJob) -> None:
        has_past = job.runs or job.restart or job.promotions or job.preemptions
        if has_past and job.end_s is None:
            self._past[job.job_id] = job.past()
        else:
            self._past.pop(job.job_id, None)

    def _recall(self, job_ids: Sequence[int]) -> None:
        """Jobs that came back into Slurm's list, or that ended while nobody looked, may be known to the store."""
        if not job_ids:
            return
        with self._store.read() as session:
            for part in _parts(job_ids):
                rows = session.scalars(select(Job).where(Job.job_id.in_(part)).order_by(Job.submit_s))
                self._adopt(session, rows.all())

    def _adopt(self, session: Session, rows: Sequence[Job]) -> None:
        """Take rows of the store into memory; of several with one id the newest stays."""
        by_pk = {row.id: remembered_job(row) for row in rows}
        for part in _parts(list(by_pk)):
            for run in session.scalars(select(Run).where(Run.job_pk.in_(part))):
                by_pk[run.job_pk].runs[run.restart] = remembered_run(run)
        for job in by_pk.values():
            job.restart = max(job.runs, default=0)
            self.jobs[job.job_id] = job
            self._refresh(job)

    def _fill_missing_runs(self, now_s: float) -> None:
        """Runs that began and ended while nobody looked, from what prolog and epilog recorded."""
        if not self._gaps:
            return
        with self._store.read() as session:
            for job_id, since_s in list(self._gaps.items()):
                job = self.jobs.get(job_id)
                if job is not None:
                    _fill(job, session.scalars(select(NodeEvent).where(NodeEvent.job_id == job_id)).all())
                    self._refresh(job)
                if job is None or not job.missing_runs or now_s - since_s > GAP_PATIENCE_S:
                    del self._gaps[job_id]


def give_up(job: RememberedJob, now_s: float) -> None:
    """The job is gone and nobody can say how it ended."""
    job.accounted, job.dirty = True, True
    if job.end_s is None:
        job.end_s, job.state = now_s, VANISHED
        for run in job.runs.values():
            if run.end_s is None:
                run.end_s, run.dirty = now_s, True


def _fill(job: RememberedJob, events: Sequence[NodeEvent]) -> None:
    for restart in job.missing_runs:
        opened = [e for e in events if e.restart == restart and e.kind == "open" and e.at_s >= job.submit_s - 1]
        closed = [e.at_s for e in events if e.restart == restart and e.kind == "close" and e.at_s >= job.submit_s - 1]
        if opened and closed:
            start_s, gpus = min(e.at_s for e in opened), sum(len(e.record.get("gpus", ())) for e in opened)
            names = ",".join(sorted({e.node for e in opened}))
            job.add_run(RememberedRun(restart, start_s, max(*closed, start_s), names, gpus))


def _parts(job_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Lists short enough for one statement."""
    return (job_ids[at : at + _IDS_PER_STATEMENT] for at in range(0, len(job_ids), _IDS_PER_STATEMENT))

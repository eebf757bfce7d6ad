"""Runs in pools, as they are seen to begin and end, and which of them Slurm aborted.

Slurm requeues a job whose borrowed cores it takes back. What then shows: a larger restart count, a new submit time, and a
list of partitions that begins with the one where the job ran. So the end of a run is recognised also when nobody looked
meanwhile. slurmctld shows the same after a requeue by the owner, an admin or sodad, and after the loss of a node; only
accounting tells them apart, by the state of the run that ended (measured on 24.11: PREEMPTED, REQUEUED or NODE_FAIL, within
a second). Until it has told, and where it never does, the run was not aborted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.pool_runs import PoolRun
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.read.sacct import JobAccounting

EXPLAINED_SOON_S = 10.0
"""Accounting usually knows of an end sooner than this: what depends on it waits so long."""

EXPLAINED_WITHIN_S = 3600.0
"""Accounting is not asked any more about a run that ended longer ago."""

_TAKEN_BACK = "PREEMPTED"
"""What accounting calls a run that Slurm requeued for another job."""

_STATES_HOLDING_RESOURCES = ("RUNNING", "SUSPENDED")


@dataclass(slots=True)
class PoolRunTracker:
    """The runs of all live jobs in pools."""

    by_job: dict[int, dict[int, PoolRun]] = field(default_factory=dict)
    """By job id and restart count."""
    explained: set[tuple[int, int]] = field(default_factory=set)
    """Runs whose end accounting has told to this process, by job id and restart count."""
    ended: set[int] = field(default_factory=set)
    """Jobs that Slurm still lists and whose last run is kept."""
    dirty: dict[tuple[int, int], PoolRun] = field(default_factory=dict)

    def adopt(self, runs: Sequence[PoolRun]) -> None:
        """Take in what the store knows."""
        for run in runs:
            self.by_job.setdefault(run.job_id, {})[run.restart] = run

    def aborts(self, job_id: int) -> int:
        """How often Slurm requeued the job from what it had borrowed."""
        return sum(run.aborted for run in self.by_job.get(job_id, {}).values())

    def observe(self, jobs: Mapping[int, SlurmJob], job_cache: JobCache, table: PoolTable, now_s: float) -> None:
        """Take in one Slurm state, which the job cache has taken in already."""
        for job_id, record in jobs.items():
            known = self.by_job.get(job_id)
            if known is None and not _pool_partitions(record, table):
                continue
            if known and next(iter(known.values())).submit_s != job_cache.submit_s(job_id):
                known = self._renamed(job_id, known, job_cache.submit_s(job_id))
            self._close(record, known or {}, job_cache, table, now_s)
            if record.state in _STATES_HOLDING_RESOURCES:
                self._open(record, job_cache, table)
            elif record.state in ENDED_STATES:
                self._add_unseen(record, job_cache, table, now_s)
                self._forget(job_id)
        for job_id in [job_id for job_id in self.by_job if job_id not in jobs]:
            self._give_up(job_id, now_s)
        self.ended.intersection_update(jobs)

    def unexplained(
        self, jobs: Mapping[int, SlurmJob], now_s: float, within_s: float = EXPLAINED_WITHIN_S
    ) -> list[int]:
        """Jobs with a run on borrowed resources whose end only accounting can explain, last ended first.

        Runs that ended longer ago than ``within_s`` are left out.
        """
        ends = {
            job_id: end_s
            for job_id, runs in self.by_job.items()
            for run in runs.values()
            if (end_s := self._unexplained_end_s(run, jobs[job_id].restarts)) is not None
            if now_s - end_s <= within_s
        }
        return sorted(ends, key=lambda job_id: (-ends[job_id], job_id))

    def _unexplained_end_s(self, run: PoolRun, restarts: int) -> float | None:
        known = run.aborted or (run.job_id, run.restart) in self.explained
        return run.end_s if run.borrowing and run.restart < restarts and not known else None

    def explain(self, answers: Iterable[JobAccounting]) -> list[int]:
        """Take in what accounting says; returns the jobs found aborted, once for each run."""
        aborted = []
        for answer in answers:
            runs = self.by_job.get(answer.job_id, {})
            for told in answer.runs:
                run = runs.get(told.restart)
                # An earlier job of the same id ended before this one was submitted.
                if run is None or run.end_s is None or math.isnan(told.end_s) or told.end_s < run.submit_s:
                    continue
                self.explained.add((run.job_id, run.restart))
                if run.borrowing and not run.aborted and told.state == _TAKEN_BACK:
                    run.aborted = True
                    self._keep(run)
                    aborted.append(run.job_id)
        return aborted

    def saved(self) -> None:
        """What was dirty is in the store."""
        self.dirty.clear()

    def _renamed(self, job_id: int, known: dict[int, PoolRun], submit_s: float) -> dict[int, PoolRun]:
        """The job cache has learned of an earlier submission, or another job has this id now."""
        if submit_s > next(iter(known.values())).submit_s:
            self._forget(job_id)
            return {}
        for run in known.values():
            run.submit_s = submit_s
        return known

    def _open(self, record: SlurmJob, job_cache: JobCache, table: PoolTable) -> None:
        part = table.get(record.partition)
        if part is None or record.restarts in self.by_job.get(record.job_id, {}):
            return
        waited_since_s = _waited_since(job_cache, record)
        self._keep(
            _pool_run(
                record,
                part,
                job_cache,
                record.restarts,
                queued_s=max(0.0, record.start_s - waited_since_s),
                start_s=record.start_s,
            )
        )

    def _add_unseen(self, record: SlurmJob, job_cache: JobCache, table: PoolTable, now_s: float) -> None:
        """The last run of a job that ended, whose beginning was not observed."""
        if record.job_id not in self.ended and record.node_names and not math.isnan(record.start_s):
            self._open(record, job_cache, table)
            for run in self.by_job.get(record.job_id, {}).values():
                run.end_s = _end_s(record, now_s) if run.end_s is None else run.end_s
        self.ended.add(record.job_id)

    def _close(
        self, record: SlurmJob, known: Mapping[int, PoolRun], job_cache: JobCache, table: PoolTable, now_s: float
    ) -> None:
        """Close runs that are over, and add the last one before a requeue if its beginning was not observed."""
        if record.state == "COMPLETING":
            return
        for run in known.values():
            over = run.restart < record.restarts or record.state in ENDED_STATES
            if run.end_s is None and over:
                run.end_s = record.submit_s if run.restart < record.restarts else _end_s(record, now_s)
                self._keep(run)
        last = record.restarts - 1
        # A run that the job cache has seen and this tracker has not was not in a pool.
        if record.state != "PENDING" or last < 0 or last in known or last in job_cache.jobs[record.job_id].runs:
            return
        part = table.get(record.partition.split(",", 1)[0])
        if part is not None and part.borrowing:
            self._keep(_pool_run(record, part, job_cache, last, end_s=record.submit_s))

    def _keep(self, run: PoolRun) -> None:
        self.by_job.setdefault(run.job_id, {})[run.restart] = run
        self.dirty[run.job_id, run.restart] = run

    def _give_up(self, job_id: int, now_s: float) -> None:
        """Slurm no longer lists the job: its run is over, at an unknown time."""
        for run in self.by_job[job_id].values():
            if run.end_s is None:
                run.end_s = now_s
                self._keep(run)
        self._forget(job_id)

    def _forget(self, job_id: int) -> None:
        self.explained.difference_update((job_id, restart) for restart in self.by_job.pop(job_id, {}))


def _end_s(record: SlurmJob, now_s: float) -> float:
    return now_s if math.isnan(record.end_s) else record.end_s


def _pool_partitions(record: SlurmJob, table: PoolTable) -> list[PoolPartition]:
    return [part for name in record.partition.split(",") if (part := table.get(name))]


def _waited_since(job_cache: JobCache, record: SlurmJob) -> float:
    """When the wait before the present run began: the end of the run before, else the submission or begin time."""
    earlier = [run.end_s for run in job_cache.jobs[record.job_id].runs.values() if run.restart < record.restarts]
    ended = [end_s for end_s in earlier if end_s is not None]
    if ended:
        return max(ended)
    eligible_s = record.eligible_s if record.eligible_s <= record.start_s else record.submit_s
    return max(record.submit_s, eligible_s)


def _pool_run(
    record: SlurmJob,
    part: PoolPartition,
    job_cache: JobCache,
    restart: int,
    *,
    queued_s: float | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
) -> PoolRun:
    return PoolRun(
        job_id=record.job_id,
        submit_s=job_cache.submit_s(record.job_id),
        restart=restart,
        user=record.user,
        base=part.base,
        kind=part.kind.value,
        partition=part.name,
        borrowing=part.borrowing,
        gpus=record.gpus,
        cpus=record.cpus,
        queued_s=queued_s,
        start_s=start_s,
        end_s=end_s,
    )

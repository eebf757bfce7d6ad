"""Runs in pools, as they are seen to begin and end, and which of them Slurm aborted.

Slurm requeues a job whose borrowed cores it takes back. What then shows: a larger restart count, a new submit time, and a
list of partitions that begins with the one where the job ran. So an abort is recognised also when nobody looked meanwhile,
and one by one: a run that is known to be over is not judged again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.pool_runs import PoolRun
from slurm_soda.policies.pools.layout.partitions import PoolPartition, PoolTable
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES

WasRequeuedByUs = Callable[[int, int], bool]
"""Whether sodad itself requeued a job's run, by job id and restart count."""

_STATES_HOLDING_RESOURCES = ("RUNNING", "SUSPENDED")


@dataclass(frozen=True, slots=True)
class PoolRunContext:
    """What else decides how a run ended."""

    now_s: float
    table: PoolTable
    ours: WasRequeuedByUs
    down: Collection[str]
    """Nodes that cannot be used: a job that leaves one is not aborted for others."""


def down_nodes(nodes: Sequence[SlurmNode]) -> set[str]:
    """Nodes whose jobs Slurm requeues because they are gone; one that only drains keeps its jobs."""
    return {node.name for node in nodes if node.state.startswith("DOWN") or "NOT_RESPONDING" in node.state}


@dataclass(slots=True)
class PoolRunTracker:
    """The runs of all live jobs in pools."""

    by_job: dict[int, dict[int, PoolRun]] = field(default_factory=dict)
    """By job id and restart count."""
    nodes_of: dict[int, str] = field(default_factory=dict)
    """Where jobs ran when last seen running."""
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

    def observe(self, jobs: Mapping[int, SlurmJob], job_cache: JobCache, context: PoolRunContext) -> list[int]:
        """Take in one Slurm state, which the job cache has taken in already; returns the jobs found aborted now."""
        aborted = []
        for job_id, record in jobs.items():
            known = self.by_job.get(job_id)
            if known is None and not _pool_partitions(record, context.table):
                continue
            if known and next(iter(known.values())).submit_s != job_cache.submit_s(job_id):
                known = self._renamed(job_id, known, job_cache.submit_s(job_id))
            if self._close(record, known or {}, job_cache, context):
                aborted.append(job_id)
            if record.state in _STATES_HOLDING_RESOURCES:
                self._open(record, job_cache, context)
            elif record.state in ENDED_STATES:
                self._add_unseen(record, job_cache, context)
                self._forget(job_id)
        for job_id in [job_id for job_id in self.by_job if job_id not in jobs]:
            self._give_up(job_id, context.now_s)
        self.ended.intersection_update(jobs)
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

    def _open(self, record: SlurmJob, job_cache: JobCache, context: PoolRunContext) -> None:
        part = context.table.get(record.partition)
        self.nodes_of[record.job_id] = record.node_names
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

    def _add_unseen(self, record: SlurmJob, job_cache: JobCache, context: PoolRunContext) -> None:
        """The last run of a job that ended, whose beginning was not observed."""
        if record.job_id not in self.ended and record.node_names and not math.isnan(record.start_s):
            self._open(record, job_cache, context)
            for run in self.by_job.get(record.job_id, {}).values():
                run.end_s = _end_s(record, context.now_s) if run.end_s is None else run.end_s
        self.ended.add(record.job_id)

    def _close(
        self, record: SlurmJob, known: Mapping[int, PoolRun], job_cache: JobCache, context: PoolRunContext
    ) -> bool:
        """Close runs that are over; true if the last run before the present one turns out to be aborted."""
        if record.state == "COMPLETING":
            return False
        found = False
        for run in known.values():
            over = run.restart < record.restarts or record.state in ENDED_STATES
            if run.end_s is None and over:
                run.end_s = record.submit_s if run.restart < record.restarts else _end_s(record, context.now_s)
                requeued = run.restart == record.restarts - 1
                run.aborted = run.borrowing and requeued and self._taken_back(record, context)
                found |= run.aborted
                self._keep(run)
        last = record.restarts - 1
        # A run that the job cache has seen and this tracker has not was not in a pool.
        if record.state != "PENDING" or last < 0 or last in known or last in job_cache.jobs[record.job_id].runs:
            return found
        part = context.table.get(record.partition.split(",", 1)[0])
        if part is None or not part.borrowing or not self._taken_back(record, context):
            return found
        self._keep(_pool_run(record, part, job_cache, last, end_s=record.submit_s, aborted=True))
        return True

    def _taken_back(self, record: SlurmJob, context: PoolRunContext) -> bool:
        """Whether Slurm, and not sodad or the loss of a node, requeued the job's last run."""
        if context.ours(record.job_id, record.restarts - 1):
            return False
        ran_on = self.nodes_of.get(record.job_id, "")
        return not (ran_on and context.down and any(name in context.down for name in expand_hosts(ran_on)))

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
        self.by_job.pop(job_id, None)
        self.nodes_of.pop(job_id, None)


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
    aborted: bool = False,
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
        aborted=aborted,
    )

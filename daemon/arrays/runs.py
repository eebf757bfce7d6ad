"""Runs in arrays, as they are seen to begin and end, and which of them Slurm aborted.

Slurm requeues a job whose borrowed cores it takes back. What then shows: a larger restart count, a new submit time, and a
list of partitions that begins with the one where the job ran. So an abort is recognised also when nobody looked meanwhile,
and one by one: a run that is known to be over is not judged again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.store.arrays import Tenancy
from slurm_soda.daemon.store.book import JobBook
from slurm_soda.policies.arrays.layout import ArrayPartition, ArrayTable
from slurm_soda.slurm_ext.client import JobRecord, NodeRecord
from slurm_soda.slurm_ext.hostlist import expand
from slurm_soda.slurm_ext.states import ENDED

OurRequeue = Callable[[int, int], bool]
"""Whether sodad itself requeued a job's run, by job id and restart count."""

_HOLDS = ("RUNNING", "SUSPENDED")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else tells how a run ended."""

    now_s: float
    table: ArrayTable
    ours: OurRequeue
    down: Collection[str]
    """Nodes that cannot be used: a job that leaves one is not aborted for others."""


def down_nodes(nodes: Sequence[NodeRecord]) -> set[str]:
    """Nodes whose jobs Slurm requeues because they are gone; one that only drains keeps its jobs."""
    return {node.name for node in nodes if node.state.startswith("DOWN") or "NOT_RESPONDING" in node.state}


@dataclass(slots=True)
class ArrayRuns:
    """The runs of all live jobs in arrays."""

    by_job: dict[int, dict[int, Tenancy]] = field(default_factory=dict)
    """By job id and restart count."""
    nodes_of: dict[int, str] = field(default_factory=dict)
    """Where jobs ran when last seen running."""
    ended: set[int] = field(default_factory=set)
    """Jobs that Slurm still lists and whose last run is kept."""
    dirty: dict[tuple[int, int], Tenancy] = field(default_factory=dict)

    def adopt(self, tenancies: Sequence[Tenancy]) -> None:
        """Take in what the store knows."""
        for tenancy in tenancies:
            self.by_job.setdefault(tenancy.job_id, {})[tenancy.restart] = tenancy

    def aborts(self, job_id: int) -> int:
        """How often Slurm took back what the job had borrowed."""
        return sum(tenancy.aborted for tenancy in self.by_job.get(job_id, {}).values())

    def observe(self, jobs: Mapping[int, JobRecord], book: JobBook, around: Surroundings) -> list[int]:
        """Take in one sight, which the book has taken in; gives the jobs that are found aborted now."""
        aborted = []
        for job_id, record in jobs.items():
            known = self.by_job.get(job_id)
            if known is None and not _parts(record, around.table):
                continue
            if known and next(iter(known.values())).submit_s != book.submit_s(job_id):
                known = self._renamed(job_id, known, book.submit_s(job_id))
            if self._close(record, known or {}, book, around):
                aborted.append(job_id)
            if record.state in _HOLDS:
                self._open(record, book, around)
            elif record.state in ENDED:
                self._add_unseen(record, book, around)
                self._forget(job_id)
        for job_id in [job_id for job_id in self.by_job if job_id not in jobs]:
            self._give_up(job_id, around.now_s)
        self.ended.intersection_update(jobs)
        return aborted

    def saved(self) -> None:
        """What was dirty is in the store."""
        self.dirty.clear()

    def _renamed(self, job_id: int, known: dict[int, Tenancy], submit_s: float) -> dict[int, Tenancy]:
        """The book has learned of an earlier submission, or another job has this id now."""
        if submit_s > next(iter(known.values())).submit_s:
            self._forget(job_id)
            return {}
        for tenancy in known.values():
            tenancy.submit_s = submit_s
        return known

    def _open(self, record: JobRecord, book: JobBook, around: Surroundings) -> None:
        part = around.table.get(record.partition)
        self.nodes_of[record.job_id] = record.node_names
        if part is None or record.restarts in self.by_job.get(record.job_id, {}):
            return
        waited_since_s = _waited_since(book, record)
        self._keep(
            _tenancy(record, part, book, record.restarts, queued_s=max(0.0, record.start_s - waited_since_s),
                     start_s=record.start_s)
        )  # fmt: skip

    def _add_unseen(self, record: JobRecord, book: JobBook, around: Surroundings) -> None:
        """The last run of a job that ended, where nobody saw it begin."""
        if record.job_id not in self.ended and record.node_names and not math.isnan(record.start_s):
            self._open(record, book, around)
            for tenancy in self.by_job.get(record.job_id, {}).values():
                tenancy.end_s = _end_s(record, around.now_s) if tenancy.end_s is None else tenancy.end_s
        self.ended.add(record.job_id)

    def _close(
        self, record: JobRecord, known: Mapping[int, Tenancy], book: JobBook, around: Surroundings
    ) -> bool:  # fmt: skip
        """End what is over; true if the last run before the present one turns out to be aborted."""
        if record.state == "COMPLETING":
            return False
        found = False
        for tenancy in known.values():
            over = tenancy.restart < record.restarts or record.state in ENDED
            if tenancy.end_s is None and over:
                tenancy.end_s = record.submit_s if tenancy.restart < record.restarts else _end_s(record, around.now_s)
                requeued = tenancy.restart == record.restarts - 1
                tenancy.aborted = tenancy.borrowing and requeued and self._taken_back(record, around)
                found |= tenancy.aborted
                self._keep(tenancy)
        last = record.restarts - 1
        # A run that the book has seen and this has not was none in an array.
        if record.state != "PENDING" or last < 0 or last in known or last in book.jobs[record.job_id].runs:
            return found
        part = around.table.get(record.partition.split(",", 1)[0])
        if part is None or not part.borrowing or not self._taken_back(record, around):
            return found
        self._keep(_tenancy(record, part, book, last, end_s=record.submit_s, aborted=True))
        return True

    def _taken_back(self, record: JobRecord, around: Surroundings) -> bool:
        """Whether Slurm, and not sodad or the loss of a node, requeued the job's last run."""
        if around.ours(record.job_id, record.restarts - 1):
            return False
        ran_on = self.nodes_of.get(record.job_id, "")
        return not (ran_on and around.down and any(name in around.down for name in expand(ran_on)))

    def _keep(self, tenancy: Tenancy) -> None:
        self.by_job.setdefault(tenancy.job_id, {})[tenancy.restart] = tenancy
        self.dirty[tenancy.job_id, tenancy.restart] = tenancy

    def _give_up(self, job_id: int, now_s: float) -> None:
        """Slurm no longer lists the job: its run is over, nobody knows since when."""
        for tenancy in self.by_job[job_id].values():
            if tenancy.end_s is None:
                tenancy.end_s = now_s
                self._keep(tenancy)
        self._forget(job_id)

    def _forget(self, job_id: int) -> None:
        self.by_job.pop(job_id, None)
        self.nodes_of.pop(job_id, None)


def _end_s(record: JobRecord, now_s: float) -> float:
    return now_s if math.isnan(record.end_s) else record.end_s


def _parts(record: JobRecord, table: ArrayTable) -> list[ArrayPartition]:
    return [part for name in record.partition.split(",") if (part := table.get(name))]


def _waited_since(book: JobBook, record: JobRecord) -> float:
    """When the wait before the present run began: the end of the run before, else the submission or begin time."""
    earlier = [run.end_s for run in book.jobs[record.job_id].runs.values() if run.restart < record.restarts]
    ended = [end_s for end_s in earlier if end_s is not None]
    if ended:
        return max(ended)
    eligible_s = record.eligible_s if record.eligible_s <= record.start_s else record.submit_s
    return max(record.submit_s, eligible_s)


def _tenancy(
    record: JobRecord,
    part: ArrayPartition,
    book: JobBook,
    restart: int,
    *,
    queued_s: float | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    aborted: bool = False,
) -> Tenancy:
    return Tenancy(
        job_id=record.job_id, submit_s=book.submit_s(record.job_id), restart=restart, user=record.user, base=part.base,
        kind=part.kind.value, partition=part.name, borrowing=part.borrowing, gpus=record.gpus, cpus=record.cpus,
        queued_s=queued_s, start_s=start_s, end_s=end_s, aborted=aborted,
    )  # fmt: skip

"""The pools' part of a cycle: what is seen of them, what is remembered, and what a decision must know of both."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.pools.own_partitions import OwnPartitionLookup
from slurm_soda.daemon.pools.pool_runs import EXPLAINED_SOON_S, PoolRunTracker
from slurm_soda.daemon.pools.refused_updates import RefusedPoolUpdates
from slurm_soda.daemon.settings.pools import PoolSettings
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.pool_runs import load_pool_runs, save_pool_runs
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.policies.pools.stages.in_force import PoolsInForce, WaitingPoolJob
from slurm_soda.policies.pools.stages.membership import PoolMembership, bases_with_shared_gpu_nodes, membership_of
from slurm_soda.policies.pools.stages.requeued_borrowers import partitions_left
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord, read_record
from slurm_soda.slurm_ext.read.sacct import JobAccounting
from slurm_soda.slurm_ext.write.job_changes import MAX_REQUEUE_WAIT_S, MIN_RESTART_GAP_S, JobChange


class PoolsReader:
    """What sodad remembers of pools from one cycle to the next. Without pools every part of it does nothing."""

    def __init__(self, state_dir: Path, session: Session, client: SlurmClient) -> None:
        self._state_dir = state_dir
        self._own_partitions, self._refusals = OwnPartitionLookup.at(client), RefusedPoolUpdates()
        self._runs = PoolRunTracker()
        self._runs.adopt(load_pool_runs(session))
        self._record: PoolsRecord | None = None
        self._table, self._shared = PoolTable(), frozenset[str]()
        self._complaint = ""
        self._has_accounting = False

    def read(self, slurm_state: SlurmState, job_cache: JobCache) -> None:
        """Take in one Slurm state, which the job cache has taken in already."""
        self._record = self._read()
        self._table = PoolTable() if self._record is None else self._record.table
        self._shared = bases_with_shared_gpu_nodes(self._table)
        if not len(self._table) and not self._runs.by_job:
            return
        self._runs.observe(slurm_state.jobs, job_cache, self._table, slurm_state.now_s)

    def base_of(self, partition: str) -> str:
        """The site's own partition behind one of a pool's, also one that goes; any other is its own."""
        pool = self._table.get(partition)
        if pool is not None:
            return pool.base
        return partition if self._record is None else self._record.base_of.get(partition) or partition

    def explain(self, answers: Iterable[JobAccounting], slurm_state: SlurmState, job_cache: JobCache) -> Sequence[int]:
        """Take in what accounting says of runs that ended; aborts are counted here and in the job cache.

        Returns:
            Jobs about which accounting should be asked, most urgent first.
        """
        self._has_accounting = True
        for job_id in self._runs.explain(answers):
            job_cache.count_preemption(job_id)
            log(logging.INFO, "aborted", job=job_id, times=self._runs.aborts(job_id))
        return self._runs.unexplained(slurm_state.jobs, slurm_state.now_s)

    def aborted(self, jobs: Mapping[int, SlurmJob]) -> Collection[int]:
        """Waiting jobs that were aborted and whose place in the order can be restored."""
        waiting = (i for i in self._waiting_aborted(jobs) if can_be_updated_alone(jobs[i]))
        return [i for i in waiting if self._member(jobs[i]) is not None]

    def in_force(self, slurm_state: SlurmState, settings: PoolSettings, *, asks: bool) -> PoolsInForce:
        """What a decision must know of pools.

        Args:
            asks: Slurm may be asked for details of jobs that borrow no more.
        """
        record = self._record
        if record is None and not self._runs.by_job:
            return PoolsInForce()
        leaving = _leaving(record)
        on_leaving = _listing(leaving, slurm_state.jobs.values()) - self._awaited(slurm_state)
        back = set(self._waiting_aborted(slurm_state.jobs))
        if asks:
            concerned = {
                i for i in on_leaving | set(self.aborted(slurm_state.jobs)) if can_be_updated_alone(slurm_state.jobs[i])
            }
            self._own_partitions.begin(slurm_state.steady_s, concerned)
            self._refusals.keep(concerned)
        return PoolsInForce(
            table=self._table,
            shares={} if record is None else record.shares,
            leaving=leaving,
            waiting=tuple(
                self._job(slurm_state.jobs[i], slurm_state, settings, asks=asks and i not in on_leaving)
                for i in sorted(back | on_leaving)
            ),
            max_aborts=settings.max_aborts,
            reserve_after_s=settings.reserve_after_s,
        )

    def refused(self, change: JobChange, steady_s: float) -> None:
        """Slurm refused a change of some job, at an instant of the steady clock."""
        self._refusals.note(change.job_id, change.new, steady_s)

    def next_s(self, slurm_state: SlurmState, soonest_s: float) -> float:
        """When the next aborted job can be put back in line, or accounting may tell of one, at the earliest ``soonest_s``.

        Infinite without one. One that could go now and did not has a reason that the usual pause between cycles is short
        enough for.
        """
        jobs, now_s = slurm_state.jobs, slurm_state.now_s
        due = [startable_s(jobs[i], now_s) for i in self.aborted(jobs)]
        if any(jobs[i].state == "PENDING" for i in self._awaited(slurm_state)):
            due.append(soonest_s)
        return max(min((at_s for at_s in due if at_s > now_s), default=float("inf")), soonest_s)

    def save(self, session: Session) -> None:
        """Write what changed; call :meth:`saved` once the transaction is through."""
        save_pool_runs(session, self._runs.dirty.values())

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        self._runs.saved()

    def _waiting_aborted(self, jobs: Mapping[int, SlurmJob]) -> list[int]:
        ran = (i for i in self._runs.by_job if i in jobs and jobs[i].state == "PENDING")
        return [i for i in ran if self._runs.aborts(i)]

    def _awaited(self, slurm_state: SlurmState) -> set[int]:
        """Jobs of which accounting will soon tell whether they were aborted."""
        if not self._has_accounting:
            return set()
        return set(self._runs.unexplained(slurm_state.jobs, slurm_state.now_s, EXPLAINED_SOON_S))

    def _member(self, job: SlurmJob) -> PoolMembership | None:
        return membership_of(job.partition, self._table, self._shared)

    def _job(self, job: SlurmJob, slurm_state: SlurmState, settings: PoolSettings, *, asks: bool) -> WaitingPoolJob:
        aborts, alone = self._runs.aborts(job.job_id), can_be_updated_alone(job)
        known, request = False, None
        if asks and alone and aborts >= settings.max_aborts:
            member = self._member(job)
            if member is not None and member.borrowing:
                known, request = self._own_partitions.of(job)
        return WaitingPoolJob(
            job_id=job.job_id,
            aborts=aborts,
            startable_s=startable_s(job, slurm_state.now_s),
            alone=alone,
            refused=self._refusals.standing(job.job_id, slurm_state.steady_s),
            request_known=known,
            request=request,
        )

    def _read(self) -> PoolsRecord | None:
        """The pools in force; the last known ones while their file cannot be read."""
        try:
            record, complaint = read_record(self._state_dir), ""
        except SodaError as error:
            record, complaint = self._record, str(error)
        if complaint != self._complaint:
            self._complaint = complaint
            if complaint:
                log(logging.WARNING, "pools-unknown", error=complaint)
        return record


def can_be_updated_alone(record: SlurmJob) -> bool:
    """Whether an update hits this job alone: the list of an array's waiting tasks may be too long for an address."""
    return not record.array_task or record.address != str(record.array_job_id)


def startable_s(job: SlurmJob, now_s: float) -> float:
    """From when the wait after Slurm's requeue may be ended; NaN without one: a begin time further off is the user's."""
    requeued = job.waits_for_begin_time(now_s) and job.eligible_s - job.submit_s <= MAX_REQUEUE_WAIT_S
    return job.submit_s + MIN_RESTART_GAP_S if requeued else float("nan")


def _leaving(record: PoolsRecord | None) -> dict[str, str]:
    """Partitions that go, with their base; none while pools are being changed: whoever does that moves jobs."""
    if record is None or record.phase == "applying":
        return {}
    return {name: record.base_of.get(name, "") for name in record.leaving}


def _listing(leaving: Mapping[str, str], jobs: Iterable[SlurmJob]) -> set[int]:
    """Waiting jobs that list one of these partitions."""
    if not leaving:
        return set()
    lists = {job.partition for job in jobs}
    concerned = {names for names in lists if partitions_left(names, leaving) != names}
    return {job.job_id for job in jobs if job.state == "PENDING" and job.partition in concerned}

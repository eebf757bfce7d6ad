"""The arrays' part of a cycle: what is seen of them, what the policy decides in them, what Slurm is told."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.config import PoolSettings
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.pools.aborted_jobs import (
    AbortedJob,
    abort_limit_reached,
    can_be_updated_alone,
    highest_waiting_priority,
    return_change,
    return_due_s,
)
from slurm_soda.daemon.pools.leaving_partitions import jobs_in_leaving_partitions, leaving_partition_changes
from slurm_soda.daemon.pools.membership import PoolGroup, PoolMembership, pool_memberships
from slurm_soda.daemon.pools.ordering import pool_order_changes, priority_ceiling
from slurm_soda.daemon.pools.own_partitions import OwnPartitionLookup
from slurm_soda.daemon.pools.per_pool_decision import decide_per_pool, waiting_aborted_jobs, with_pool_shares
from slurm_soda.daemon.pools.pool_runs import PoolRunContext, PoolRunTracker, WasRequeuedByUs, down_nodes
from slurm_soda.daemon.pools.refused_updates import RefusedPoolUpdates
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.pool_runs import load_pool_runs, save_pool_runs
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord, read_record
from slurm_soda.slurm_ext.write.job_changes import JobChange, order_changes


class PoolStage:
    """What sodad remembers of arrays from one cycle to the next. Without arrays every part of it does nothing."""

    def __init__(self, state_dir: Path, session: Session, client: SlurmClient) -> None:
        self._state_dir = state_dir
        self._homes, self._refusals = OwnPartitionLookup.at(client), RefusedPoolUpdates()
        self._runs = PoolRunTracker()
        self._runs.adopt(load_pool_runs(session))
        self._record: PoolsRecord | None = None
        self._table, self._members = PoolTable(), dict[int, PoolMembership]()
        self._complaint = ""

    def look(self, slurm_state: SlurmState, job_cache: JobCache, ours: WasRequeuedByUs) -> None:
        """Take in one sight, which the book has taken in; aborts are counted in both."""
        self._record = self._read()
        self._table = PoolTable() if self._record is None else self._record.table
        self._members = pool_memberships(slurm_state.jobs, self._table)
        if not len(self._table) and not self._runs.by_job:
            return
        around = PoolRunContext(slurm_state.now_s, self._table, ours, down_nodes(slurm_state.nodes))
        for job_id in self._runs.observe(slurm_state.jobs, job_cache, around):
            job_cache.count_preemption(job_id)
            log(logging.INFO, "aborted", job=job_id, times=self._runs.aborts(job_id))

    def aborted(self, jobs: Mapping[int, SlurmJob]) -> Collection[int]:
        """Waiting jobs that gave back what they had borrowed and that can be put back in line."""
        waiting = (i for i in self._members if jobs[i].state == "PENDING" and self._runs.aborts(i))
        return [i for i in waiting if can_be_updated_alone(jobs[i])]

    def decide(self, policy: Policy, snapshot: ClusterSnapshot) -> Plan:
        """The policy's plan, array by array."""
        aborts = {job_id: self._runs.aborts(job_id) for job_id in self._runs.by_job}
        shares = {} if self._record is None else self._record.shares
        divided = with_pool_shares(policy, shares)
        return decide_per_pool(divided, snapshot, self._table, self._members, waiting_aborted_jobs(snapshot, aborts))

    def returns(self, slurm_state: SlurmState, settings: PoolSettings) -> list[JobChange]:
        """What puts aborted jobs back in line, first submitted first, and others out of partitions that go."""
        stays = jobs_in_leaving_partitions(self._record, slurm_state.jobs)
        waiting = {i: m for i, m in self._members.items() if slurm_state.jobs[i].state == "PENDING"}
        back = [slurm_state.jobs[i] for i in self.aborted(slurm_state.jobs) if i not in stays]
        ids = {*stays, *(record.job_id for record in back)}
        self._homes.begin(slurm_state.now_s, ids)
        self._refusals.keep(ids)
        refused = partial(self._refusals.stand, now_s=slurm_state.now_s)
        moves = leaving_partition_changes(slurm_state.jobs, stays, self._runs.aborts, refused, slurm_state.now_s)
        changes: list[JobChange] = []
        # The last one gets the place before all others, so the first submitted comes last.
        tops: dict[PoolGroup, int] = {}
        for record in sorted(back, key=lambda job: -job.job_id):
            group = waiting[record.job_id].group
            if group not in tops:
                tops[group] = highest_waiting_priority(slurm_state.jobs, waiting, group, priority_ceiling(group))
            change = self._return(record, tops[group], slurm_state, settings)
            if change is not None:
                changes.append(change)
                tops[group] = int(change.new.get("SiteFactor", tops[group]))
        return changes[::-1] + moves

    def _return(self, record: SlurmJob, top: int, slurm_state: SlurmState, settings: PoolSettings) -> JobChange | None:
        member, aborts = self._members[record.job_id], self._runs.aborts(record.job_id)
        # A list without a place to borrow is somebody's choice, or what we made of it before.
        home: str | None = record.partition
        if member.borrowing and abort_limit_reached(aborts, settings.max_aborts):
            home = self._homes.of(record, self._table, member.group.base)
        job = AbortedJob(
            record,
            member,
            aborts,
            slurm_state.site_factors.get(record.job_id),
            top,
            priority_ceiling(member.group),
            home,
            partial(self._refusals.stand, record.job_id, now_s=slurm_state.now_s),
        )
        return return_change(job, settings.max_aborts, slurm_state.now_s)

    def refused(self, change: JobChange, now_s: float) -> None:
        """Slurm refused a change of some job."""
        self._refusals.note(change.job_id, change.new, now_s)

    def orders(self, snapshot: ClusterSnapshot, plan: Plan, settings: PoolSettings, *, depth: int) -> list[JobChange]:
        """The changes after which every array is in the plan's order; without arrays, the one queue."""
        if not self._members:
            return order_changes(snapshot, plan, depth=depth)
        after_s = settings.reserve_after_s
        return pool_order_changes(snapshot, plan, self._members, depth=depth, reserve_after_s=after_s)

    def next_s(self, slurm_state: SlurmState, soonest_s: float) -> float:
        """When the next aborted job can be put back in line, at the earliest ``soonest_s``; infinite without one.

        One that could go now and did not has a reason that the usual pause between cycles is short enough for.
        """
        due = [return_due_s(slurm_state.jobs[i], slurm_state.now_s) for i in self.aborted(slurm_state.jobs)]
        return max(min((at_s for at_s in due if at_s > slurm_state.now_s), default=float("inf")), soonest_s)

    def save(self, session: Session) -> None:
        """Write what changed; call :meth:`saved` once the transaction is through."""
        save_pool_runs(session, self._runs.dirty.values())

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        self._runs.saved()

    def _read(self) -> PoolsRecord | None:
        """The arrays in force; the last known ones while their file cannot be read."""
        try:
            record, complaint = read_record(self._state_dir), ""
        except SodaError as error:
            record, complaint = self._record, str(error)
        if complaint != self._complaint:
            self._complaint = complaint
            if complaint:
                log(logging.WARNING, "arrays-unknown", error=complaint)
        return record


def requeued_by_us(active_preemption: Mapping[int, int]) -> WasRequeuedByUs:
    """Whether sodad requeued a run, from the restart counts of the runs that it preempts, by job id."""
    return lambda job_id, restart: active_preemption.get(job_id) == restart

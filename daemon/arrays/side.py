"""The arrays' part of a cycle: what is seen of them, what the policy decides in them, what Slurm is told."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.arrays.deciding import as_divided, decide, waiting_aborted
from slurm_soda.daemon.arrays.groups import Group, Membership, memberships
from slurm_soda.daemon.arrays.homes import Homes
from slurm_soda.daemon.arrays.ordering import array_order_changes, ceiling_of
from slurm_soda.daemon.arrays.refusals import Refusals
from slurm_soda.daemon.arrays.returns import (
    Returning,
    borrows_no_more,
    can_be_told,
    due_s,
    return_change,
    top_among,
)
from slurm_soda.daemon.arrays.runs import ArrayRuns, OurRequeue, Surroundings, down_nodes
from slurm_soda.daemon.arrays.strays import stray_changes, strays
from slurm_soda.daemon.config import ArraySettings
from slurm_soda.daemon.logline import log
from slurm_soda.daemon.sight import Sight
from slurm_soda.daemon.store.arrays import load_tenancies, save_tenancies
from slurm_soda.daemon.store.book import JobBook
from slurm_soda.policies.arrays.layout import ArrayTable
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.actuator import Change, order_changes
from slurm_soda.slurm_ext.arrays import ArraysRecord, read_record
from slurm_soda.slurm_ext.client import JobRecord, SlurmClient
from slurm_soda.slurm_ext.errors import SodaError


class ArraySide:
    """What sodad remembers of arrays from one cycle to the next. Without arrays every part of it does nothing."""

    def __init__(self, state_dir: Path, session: Session, client: SlurmClient) -> None:
        self._state_dir = state_dir
        self._homes, self._refusals = Homes.at(client), Refusals()
        self._runs = ArrayRuns()
        self._runs.adopt(load_tenancies(session))
        self._record: ArraysRecord | None = None
        self._table, self._members = ArrayTable(), dict[int, Membership]()
        self._complaint = ""

    def look(self, sight: Sight, book: JobBook, ours: OurRequeue) -> None:
        """Take in one sight, which the book has taken in; aborts are counted in both."""
        self._record = self._read()
        self._table = ArrayTable() if self._record is None else self._record.table
        self._members = memberships(sight.jobs, self._table)
        if not len(self._table) and not self._runs.by_job:
            return
        around = Surroundings(sight.now_s, self._table, ours, down_nodes(sight.nodes))
        for job_id in self._runs.observe(sight.jobs, book, around):
            book.count_preemption(job_id)
            log(logging.INFO, "aborted", job=job_id, times=self._runs.aborts(job_id))

    def aborted(self, jobs: Mapping[int, JobRecord]) -> Collection[int]:
        """Waiting jobs that gave back what they had borrowed and that can be put back in line."""
        waiting = (i for i in self._members if jobs[i].state == "PENDING" and self._runs.aborts(i))
        return [i for i in waiting if can_be_told(jobs[i])]

    def decide(self, policy: Policy, snapshot: ClusterSnapshot) -> Plan:
        """The policy's plan, array by array."""
        aborts = {job_id: self._runs.aborts(job_id) for job_id in self._runs.by_job}
        shares = {} if self._record is None else self._record.shares
        divided = as_divided(policy, shares)
        return decide(divided, snapshot, self._table, self._members, waiting_aborted(snapshot, aborts))

    def returns(self, sight: Sight, settings: ArraySettings) -> list[Change]:
        """What puts aborted jobs back in line, first submitted first, and others out of partitions that go."""
        stays = strays(self._record, sight.jobs)
        waiting = {i: m for i, m in self._members.items() if sight.jobs[i].state == "PENDING"}
        back = [sight.jobs[i] for i in self.aborted(sight.jobs) if i not in stays]
        ids = {*stays, *(record.job_id for record in back)}
        self._homes.begin(sight.now_s, ids)
        self._refusals.keep(ids)
        refused = partial(self._refusals.stand, now_s=sight.now_s)
        moves = stray_changes(sight.jobs, stays, self._runs.aborts, refused, sight.now_s)
        changes: list[Change] = []
        # The last one gets the place before all others, so the first submitted comes last.
        tops: dict[Group, int] = {}
        for record in sorted(back, key=lambda job: -job.job_id):
            group = waiting[record.job_id].group
            if group not in tops:
                tops[group] = top_among(sight.jobs, waiting, group, ceiling_of(group))
            change = self._return(record, tops[group], sight, settings)
            if change is not None:
                changes.append(change)
                tops[group] = int(change.new.get("SiteFactor", tops[group]))
        return changes[::-1] + moves

    def _return(self, record: JobRecord, top: int, sight: Sight, settings: ArraySettings) -> Change | None:
        member, aborts = self._members[record.job_id], self._runs.aborts(record.job_id)
        # A list without a place to borrow is somebody's choice, or what we made of it before.
        home: str | None = record.partition
        if member.borrowing and borrows_no_more(aborts, settings.max_aborts):
            home = self._homes.of(record, self._table, member.group.base)
        job = Returning(
            record, member, aborts, sight.site_factors.get(record.job_id), top, ceiling_of(member.group), home,
            partial(self._refusals.stand, record.job_id, now_s=sight.now_s),
        )  # fmt: skip
        return return_change(job, settings.max_aborts, sight.now_s)

    def refused(self, change: Change, now_s: float) -> None:
        """Slurm refused a change of some job."""
        self._refusals.note(change.job_id, change.new, now_s)

    def orders(self, snapshot: ClusterSnapshot, plan: Plan, settings: ArraySettings, *, depth: int) -> list[Change]:
        """The changes after which every array is in the plan's order; without arrays, the one queue."""
        if not self._members:
            return order_changes(snapshot, plan, depth=depth)
        after_s = settings.book_after_s
        return array_order_changes(snapshot, plan, self._members, depth=depth, book_after_s=after_s)

    def next_s(self, sight: Sight, soonest_s: float) -> float:
        """When the next aborted job can be put back in line, at the earliest ``soonest_s``; infinite without one.

        One that could go now and did not has a reason that the usual pause between cycles is short enough for.
        """
        due = [due_s(sight.jobs[i], sight.now_s) for i in self.aborted(sight.jobs)]
        return max(min((at_s for at_s in due if at_s > sight.now_s), default=float("inf")), soonest_s)

    def save(self, session: Session) -> None:
        """Write what changed; call :meth:`saved` once the transaction is through."""
        save_tenancies(session, self._runs.dirty.values())

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        self._runs.saved()

    def _read(self) -> ArraysRecord | None:
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


def ours_among(preempting: Mapping[int, int]) -> OurRequeue:
    """Whether sodad requeued a run, from the restart counts of the runs that it preempts, by job id."""
    return lambda job_id, restart: preempting.get(job_id) == restart

"""Any policy in bands: it orders the jobs of each, and nobody who starts delays a waiting job of a better one.

The policy is asked; what it wants is looked at; who would delay a better band is bound to other nodes, or kept from
starting, and the policy is asked again, until nobody does. So no policy needs to know of bands beyond the first key of its
order, and none can forget them (docs/policies/bands.md says what holds, and why).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from slurm_soda.policies.bands.delays import Delay, find_delaying
from slurm_soda.policies.engine.demand import ANY_NODE, group_snapshot_requests
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.policy import Policy, PreemptsByRank
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState
from slurm_soda.policies.waiting.overdue import find_next_overdue_s
from slurm_soda.policies.waiting.overdue_pass import find_hopeless

_TURNS = 6
"""After so many decisions in vain no job may start that ranks behind a waiting one of a better band, unless it makes way."""


def decide_in_bands(policy: Policy, snapshot: ClusterSnapshot, decide: Callable[[ClusterSnapshot], Plan]) -> Plan:
    """The policy's plan, in which nobody delays a better band; ``decide`` is how it is asked.

    Where all waiting and running jobs are in one band it is asked once, about the snapshot as it is.
    """
    jobs = snapshot.jobs
    if not len(jobs.band) or not np.ptp(jobs.band):
        return decide(snapshot)
    next_overdue_s = find_next_overdue_s(snapshot)
    snapshot = _with_overdue_first(snapshot)
    preempts = isinstance(policy, PreemptsByRank) and policy.preempts_by_rank
    kept_out = _KeptOut(snapshot)
    for turn in range(2 * len(jobs) + 1):
        plan = decide(kept_out.view())
        found = find_delaying(snapshot, plan, kept_out.barred, preempts=preempts)
        if not kept_out.add(found):
            break
        if turn >= _TURNS:
            kept_out.barred |= _all_behind(snapshot, plan, preempts=preempts)
    if preempts and isinstance(plan, SharingPlan):
        plan = _as_without_worse(plan, kept_out, decide)
    if next_overdue_s < plan.next_event_s:
        plan = replace(plan, next_event_s=next_overdue_s)
    return kept_out.with_reasons(plan)


def _as_without_worse(plan: Plan, kept_out: _KeptOut, decide: Callable[[ClusterSnapshot], Plan]) -> Plan:
    """The plan of a policy that matches all jobs with each other at once, if nothing of a better band hangs on who waits in
    a worse one; else the one in which no job of the worse bands starts. One decision more for each band that waits.
    """
    jobs, before = kept_out.snapshot.jobs, kept_out.barred
    waits = jobs.state == JobState.PENDING
    for band in np.unique(jobs.band[waits & ~before])[:-1].tolist():
        kept_out.barred = before | (waits & (jobs.band > band))
        alone = decide(kept_out.view())
        better = jobs.job_id[jobs.band <= band]
        if _gets(alone, better) != _gets(plan, better):
            return alone
    kept_out.barred = before
    return plan


def _gets(plan: Plan, job_ids: IntColumn) -> tuple[set[int], ...]:
    """Which of these jobs start, get places at all, and lose them."""
    known = set(job_ids.tolist())
    return known & set(plan.starts.tolist()), known & plan.places.keys(), known & {one.job_id for one in plan.preempts}


class _KeptOut:
    """Jobs that would delay a better band: bound to other nodes, or where that does not help, kept from starting.

    Attributes:
        snapshot: what is decided on.
        barred: flags of those that are kept from starting.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        jobs, nodes = snapshot.jobs, snapshot.nodes
        self.snapshot = snapshot
        self.barred = ~jobs.may_start if len(jobs.may_start) else np.zeros(len(jobs), dtype=np.bool_)
        self._node_set = jobs.node_set.copy() if len(jobs.node_set) else np.full(len(jobs), ANY_NODE, dtype=np.int64)
        self._sets = [*nodes.node_sets.T]
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._closed: dict[int, BoolColumn] = {}
        self._behind: dict[int, int] = {}

    def add(self, found: Mapping[int, Delay]) -> bool:
        """Keep these out of where they would delay somebody; whether that changes anything."""
        changed = False
        for row, delay in found.items():
            if self.barred[row]:
                continue
            before = self._closed.get(row)
            closed = delay.nodes if before is None else delay.nodes | before
            self._behind[row] = delay.row
            if closed.any() and (before is None or (closed != before).any()) and not closed.all():
                self._closed[row] = closed
                self._node_set[row] = self._number(row, closed)
            else:
                self.barred[row] = True
            changed = True
        return changed

    def _number(self, row: int, closed: BoolColumn) -> int:
        own = int(self.snapshot.jobs.node_set[row]) if len(self.snapshot.jobs.node_set) else ANY_NODE
        key = own, closed.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._sets)
            self._sets.append(~closed if own == ANY_NODE else ~closed & self.snapshot.nodes.node_sets[:, own])
        return self._numbers[key]

    def view(self) -> ClusterSnapshot:
        """What the policy is asked about."""
        snapshot = self.snapshot
        jobs = snapshot.jobs.with_columns(may_start=~self.barred) if self.barred.any() else snapshot.jobs
        if not self._numbers:
            return replace(snapshot, jobs=jobs)
        columns = np.array(self._sets, dtype=np.bool_).T
        return replace(
            snapshot,
            jobs=jobs.with_columns(node_set=self._node_set.copy()),
            nodes=replace(snapshot.nodes, node_sets=columns),
        )

    def with_reasons(self, plan: Plan) -> Plan:
        """The plan that says behind whom those wait that were kept out."""
        jobs, notes = self.snapshot.jobs, plan.notes
        behind = notes.behind.copy() if len(notes.behind) else np.zeros(len(jobs), dtype=np.int64)
        for row, other in self._behind.items():
            if notes.verdict[row] == JobVerdict.WAIT:
                behind[row] = jobs.job_id[other]
        return replace(plan, notes=replace(notes, behind=behind)) if self._behind else plan


def _with_overdue_first(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Inside each band first who started overdue, until its sure run is over, then who waits and is overdue.

    Those of the best band that waits are left to whoever serves overdue jobs first; of others only that is known.
    """
    jobs = snapshot.jobs
    if not len(jobs.overdue) or not jobs.overdue.any():
        return snapshot
    waits = jobs.state == JobState.PENDING
    best = _find_best_that_waits(snapshot)
    later = jobs.overdue & (jobs.band > best)
    band = 3 * jobs.band + np.where(later, waits, 2)
    return replace(snapshot, jobs=jobs.with_columns(band=band, overdue=jobs.overdue & ~later))


def _find_best_that_waits(snapshot: ClusterSnapshot) -> int:
    """The best band of a job that waits for others to end: one that the nodes could not serve, were they empty, does not."""
    jobs = snapshot.jobs
    rows = np.flatnonzero(jobs.state == JobState.PENDING)
    demand = group_snapshot_requests(snapshot)
    hopeless = find_hopeless(snapshot, demand, np.unique(demand.code[rows]).tolist())
    rows = rows[~np.isin(demand.code[rows], list(hopeless))]
    return int(jobs.band[rows].min()) if len(rows) else 0


def _all_behind(snapshot: ClusterSnapshot, plan: Plan, *, preempts: bool) -> BoolColumn:
    """Waiting jobs of any band but the best of those that go on waiting, unless they make way."""
    jobs = snapshot.jobs
    placed = np.isin(jobs.job_id, list(plan.places))
    waits = jobs.state == JobState.PENDING
    best = jobs.band[waits & ~placed].min(initial=np.iinfo(np.int64).max)
    makes_way = jobs.preemptible & (jobs.gpus > 0) & preempts
    found: BoolColumn = waits & (jobs.band > best) & ~makes_way
    return found

"""The stage that parts a pair, so that the guest leaves: a slowdown was observed beyond its bound for long enough, or a
fault under MPS may have ended both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.mechanism.guest_rules import GuestRules
from slurm_soda.policies.sharing.ojpp.worker_moves import InterferenceTrigger
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState

TRIGGER = InterferenceTrigger(weight=0.0, interval_s=MEASURED_AFTER_S)
"""OJPAP's (Equation 18). What was observed is an average already, so the past counts no further; its first observation is
made when a slowdown counts as measured, which is the grace of a pair that just met."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PartPairs:
    """Whatever policy made a pair: who is slowed beyond the bound of its owner gets its GPU for itself, or another one.
    So does a guest of whom an admin said that it shall share no more.

    Of a host and its guests the guest leaves, never the host; of several guests the one who came last, as the bound held
    before. Only a guest that can save its state leaves, one that has no guests itself, and only while nobody is given its
    GPUs in the same decision. But a guest that no prolog recorded leaves in any case: when its host ends nothing would keep
    others, who have not agreed, off its GPUs, and its owner has agreed that it leaves then. A job's bound is its owner's, or
    what the site assumes for it; without one, a pair is parted only after a fault.
    """

    trigger: InterferenceTrigger = TRIGGER

    @property
    def name(self) -> str:
        return "part pairs"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with the guests that leave; O(jobs), and O(GPUs held) where a bound is broken."""
        if not isinstance(snapshot, SharingSnapshot):
            return plan
        broken, faulted = self.find_broken(snapshot), _find_faulted(snapshot)
        sharing = snapshot.sharing
        if not (len(broken) or faulted or sharing.manual_partings or sharing.unrecorded):
            return plan
        pairs = _Pairs(snapshot, plan)
        parted = _without_walls(snapshot, plan) | _parted_by_hand(snapshot, pairs)
        for one, other in faulted:
            guest = pairs.last_guest(one, {other}) if other in pairs.co_runners(one) else None
            if guest is not None and guest not in parted:
                parted[guest] = _part_after_fault(snapshot, guest, other if guest == one else one)
        for row in broken.tolist():
            guest = pairs.last_guest(row, pairs.co_runners(row))
            if guest is not None and guest not in parted and not pairs.co_runners(guest) & parted.keys():
                parted[guest] = _part(snapshot, guest, row, pairs.co_runners(guest))
        return _with_parted(plan, parted) if parted else plan

    def find_broken(self, snapshot: SharingSnapshot) -> IntColumn:
        """Rows of running jobs whose bound was broken for long enough."""
        observed, lasted_s = snapshot.sharing.observed_slowdown, snapshot.sharing.together_s
        bound = snapshot.sharing.max_slowdown
        with np.errstate(invalid="ignore"):
            over = (snapshot.jobs.state == JobState.RUNNING) & (observed > bound) & (lasted_s > 0)
        rows: IntColumn = np.flatnonzero(over)
        return rows[[self._lasts(observed, bound, lasted_s, row) for row in rows.tolist()]] if len(rows) else rows

    def explain_stays(self, snapshot: SharingSnapshot, plan: Plan) -> dict[int, str]:
        """By id: why jobs whose bound was broken for long enough stay beside others: no guest can save its state."""
        broken, faulted, found = self.find_broken(snapshot), _find_faulted(snapshot), dict[int, str]()
        if not (len(broken) or faulted):
            return found
        pairs, job_id = _Pairs(snapshot, plan), snapshot.jobs.job_id
        for one, other in faulted:
            guests = [row for row in (one, other) if len(snapshot.devices.guest_on(row))]
            if other in pairs.co_runners(one) and guests and not any(_can_go(snapshot, row) for row in guests):
                for row, beside in ((one, other), (other, one)):
                    found[int(job_id[row])] = (
                        f"a fatal fault under MPS concerned it and job {job_id[beside]}, but the guest cannot be requeued "
                        "with its state saved (--soda-checkpoint): they stay together until one of them ends"
                    )
        for row in broken.tolist():
            guests = [one for one in sorted({row, *pairs.co_runners(row)}) if len(snapshot.devices.guest_on(one))]
            if guests and not any(_can_go(snapshot, one) for one in guests):
                told = ", ".join(str(job_id[one]) for one in guests)
                found[int(job_id[row])] = (
                    f"it is slowed more than {snapshot.sharing.max_slowdown[row]:.3g} times, but guest {told} cannot be "
                    "requeued with its state saved (--soda-checkpoint): they run on together until one of them ends"
                )
        return found

    def _lasts(self, observed: FloatColumn, bound: FloatColumn, lasted_s: FloatColumn, row: int) -> bool:
        average = self.trigger.smoothed(float(observed[row]) - 1.0, float(lasted_s[row]))
        return average > float(bound[row]) - 1.0 + _ROUNDING


class _Pairs:
    """Who is on which GPU now, and what the plan does to them."""

    def __init__(self, snapshot: SharingSnapshot, plan: Plan) -> None:
        self._snapshot, self._rules = snapshot, GuestRules(snapshot)
        jobs, devices = snapshot.jobs, snapshot.devices
        self._there: dict[int, list[int]] = {}
        for row in np.flatnonzero((jobs.state == JobState.RUNNING) & (np.diff(devices.held_start) > 0)).tolist():
            for device in devices.of(row).tolist():
                self._there.setdefault(device, []).append(row)
        self._leaving = {jobs.row(item.job_id) for item in plan.preempts}
        given = plan.devices if isinstance(plan, SharingPlan) else {}
        self._given = {device for held in given.values() for device in held}

    def _on(self, device: int) -> list[int]:
        return self._there.get(device, [])

    def co_runners(self, row: int) -> set[int]:
        """Who runs on GPUs of a running job."""
        mine = self._snapshot.devices.of(row).tolist()
        return {one for device in mine for one in self._on(device)} - {row}

    def last_guest(self, row: int, beside: set[int]) -> int | None:
        """Who of a job and these beside it has to leave; None if nobody can, or somebody leaves already."""
        if not beside or self._leaving & {row, *beside}:
            return None
        able = [one for one in (row, *beside) if self._may_leave(one)]
        start_s, job_id = self._snapshot.jobs.start_s, self._snapshot.jobs.job_id
        return max(able, key=lambda one: (start_s[one], job_id[one]), default=None)

    def may_be_parted(self, row: int) -> bool:
        """Whether a running guest can be made to leave now."""
        beside = self.co_runners(row)
        return bool(beside) and not self._leaving & {row, *beside} and self._may_leave(row)

    def _may_leave(self, row: int) -> bool:
        """Whether a job that shares can go in this decision, and hosts nobody: then it is a guest wherever it shares."""
        mine: list[int] = self._snapshot.devices.of(row).tolist()
        if not _can_go(self._snapshot, row) or self._given.intersection(mine):
            return False
        return not self._rules.guests(row, self._on)


def _without_walls(snapshot: SharingSnapshot, plan: Plan) -> dict[int, PreemptJob]:
    """By row: guests that no prolog recorded. The two may share again: nobody was slowed."""
    leaving = {item.job_id for item in plan.preempts}
    return {
        row: PreemptJob(
            job_id, (), "no prolog has recorded it: nothing would keep others off its GPUs when its host ends"
        )
        for job_id in snapshot.sharing.unrecorded
        if job_id not in leaving and snapshot.jobs.state[row := snapshot.jobs.row(job_id)] == JobState.RUNNING
    }


def _parted_by_hand(snapshot: SharingSnapshot, pairs: _Pairs) -> dict[int, PreemptJob]:
    """By row: guests that leave by an admin's word."""
    parted: dict[int, PreemptJob] = {}
    for job_id in snapshot.sharing.manual_partings:
        row = snapshot.jobs.row(job_id)
        if snapshot.jobs.state[row] == JobState.RUNNING and pairs.may_be_parted(row):
            others = tuple(sorted(int(snapshot.jobs.job_id[one]) for one in pairs.co_runners(row)))
            parted[row] = PreemptJob(job_id, (), "by hand: it shall not share any more", parted_from=others)
    return parted


def _can_go(snapshot: SharingSnapshot, row: int) -> bool:
    """Whether a job's state can be saved, and the job requeued."""
    return bool(snapshot.jobs.preemptible[row] or snapshot.sharing.revocable[row])


def _find_faulted(snapshot: SharingSnapshot) -> list[tuple[int, int]]:
    """Rows of the pairs that a fault concerned and that run, whether together or not."""
    jobs = snapshot.jobs
    if not snapshot.sharing.faulted:
        return []
    rows = {int(jobs.job_id[row]): row for row in np.flatnonzero(jobs.state == JobState.RUNNING).tolist()}
    return [(rows[one], rows[other]) for one, other in snapshot.sharing.faulted if one in rows and other in rows]


def _part_after_fault(snapshot: SharingSnapshot, guest: int, other: int) -> PreemptJob:
    told = int(snapshot.jobs.job_id[other])
    reason = f"a fatal fault under MPS may have ended it and job {told} together"
    return PreemptJob(int(snapshot.jobs.job_id[guest]), (), reason, parted_from=(told,))


def _part(snapshot: SharingSnapshot, guest: int, slowed: int, beside: set[int]) -> PreemptJob:
    jobs, sharing = snapshot.jobs, snapshot.sharing
    who = "" if slowed == guest else f" of job {jobs.job_id[slowed]}"
    reason = (
        f"observed slowdown {sharing.observed_slowdown[slowed]:.3g}{who} over the bound {sharing.max_slowdown[slowed]:.3g}, "
        f"for {math.floor(sharing.together_s[slowed])} s"
    )
    # Who slows a guest most on one of its GPUs, nobody has seen: it and all beside it have run together for as long.
    met = beside if slowed == guest else {slowed}
    others = tuple(sorted(int(jobs.job_id[one]) for one in met))
    return PreemptJob(int(jobs.job_id[guest]), (), reason, parted_from=others)


def _with_parted(plan: Plan, parted: Mapping[int, PreemptJob]) -> Plan:
    verdict = plan.notes.verdict.copy()
    verdict[np.isin(plan.notes.job_id, [one.job_id for one in parted.values()])] = JobVerdict.PREEMPT
    preempts = plan.facts.get("preempts", 0.0) + len(parted)
    facts = {**plan.facts, "preempts": preempts, "parted": float(len(parted))}
    actions = (*plan.actions, *parted.values())
    return replace(plan, actions=actions, notes=replace(plan.notes, verdict=verdict), facts=facts)

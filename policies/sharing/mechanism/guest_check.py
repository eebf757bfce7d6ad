"""Whether a plan asks for no more than the engine's mechanism can do, for every policy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.mechanism.guest_rules import GuestRules
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState


class GuestFault(NamedTuple):
    """What a mechanism cannot do of a plan."""

    job_id: int
    problem: str
    preempts: bool
    """It is that the job is preempted, not where it starts."""


def find_guest_fault(snapshot: SharingSnapshot, plan: Plan) -> GuestFault | None:
    """The first thing that cannot be: a seat that the mechanism has not, a host that may not be preempted, a pair that was
    parted and would meet again, or a guest for a job that was slowed too much.

    A plan that names no GPUs seats nobody beside anybody, so there is nothing to find.

    Complexity: O(GPUs held + GPUs of the jobs that start x jobs on each).
    """
    if not isinstance(plan, SharingPlan) or not (plan.places or plan.preempts):
        return None
    rules = GuestRules(snapshot)
    if not rules.limited:
        return None
    jobs, devices = snapshot.jobs, snapshot.devices
    there: list[list[int]] = [[] for _ in range(len(devices))]
    owner = devices.owner
    runs = jobs.state[owner] == JobState.RUNNING
    for device, row in zip(devices.held[runs].tolist(), owner[runs].tolist(), strict=True):
        there[device].append(row)
    leaving = [jobs.row(item.job_id) for item in plan.preempts]
    for row in leaving:
        problem = _refuse_to_leave(snapshot, rules, rules.guests(row, there.__getitem__), set(leaving))
        if problem:
            return GuestFault(int(jobs.job_id[row]), problem, preempts=True)
    for row in leaving:
        rules.depart(row)
        for device in devices.of(row).tolist():
            there[device].remove(row)
    for job_id in plan.places:
        row, mine = jobs.row(job_id), plan.devices.get(job_id, ())
        refusal = rules.refuse(row, mine, there.__getitem__)
        if refusal:
            barred = any(rules.refuse_barred(row, there[device]) for device in mine)
            problem = refusal if barred else f"mechanism {snapshot.mechanism.name!r} cannot do that: {refusal}"
            return GuestFault(job_id, problem, preempts=False)
        rules.arrive(row, mine, there.__getitem__)
        for device in mine:
            there[device].append(row)
    return None


def _refuse_to_leave(
    snapshot: SharingSnapshot, rules: GuestRules, guests: Sequence[int], leaving: Collection[int]
) -> str:
    """A host leaves with its guests, which save their state first, or stays."""
    if guests and not rules.mechanism.preempts_hosts:
        return f"mechanism {snapshot.mechanism.name!r} cannot preempt a host that has guests"
    staying = [int(snapshot.jobs.job_id[row]) for row in guests if row not in leaving]
    if staying and rules.mechanism.revokes:
        return f"its guest, job {staying[0]}, would lose its seat unsaved; preempt that job too"
    return ""

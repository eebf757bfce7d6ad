"""Any policy under the passing limit: overdue jobs are served first, the policy decides on what that leaves.

What the policy sees is the snapshot without the overdue jobs and without what they get, in which a job that could delay one
of them is bound to other nodes. What it wants is looked at once more, since it may put several jobs where there is room for
one. So no policy needs to know of the limit, and none can forget it (docs/policies/waiting.md has the theorem).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.policies.engine.demand import ANY_NODE, group_equal_rows
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState
from slurm_soda.policies.waiting.device_choice import DeviceChoice
from slurm_soda.policies.waiting.overdue import find_next_overdue_s, find_protected
from slurm_soda.policies.waiting.overdue_pass import OverduePass
from slurm_soda.policies.waiting.united_plan import unite_plans


def decide_bounded(policy: Policy, snapshot: ClusterSnapshot, *, preempts: bool = True) -> Plan:
    """The policy's plan, with overdue jobs served first.

    Args:
        policy: any.
        snapshot: what it is asked about; without overdue jobs it is asked about that.
        preempts: plans may preempt: overdue jobs take places from those who can be requeued, under every policy.
    """
    jobs = snapshot.jobs
    if not len(jobs.overdue) or not jobs.overdue.any():
        return _finish(policy.decide(snapshot), snapshot)
    # A guest that waits has its places, and who may not start wants none.
    out = np.zeros(len(jobs), dtype=np.bool_)
    if isinstance(snapshot, SharingSnapshot):
        out |= snapshot.sharing.waits_as_guest
    if len(jobs.may_start):
        out |= ~jobs.may_start & (jobs.state == JobState.PENDING)
    jobs = jobs.with_columns(overdue=jobs.overdue & ~out)
    snapshot = replace(snapshot, jobs=jobs)
    waits = jobs.overdue & (jobs.state == JobState.PENDING)
    view = replace(snapshot, jobs=jobs.with_columns(preemptible=jobs.preemptible & ~find_protected(snapshot)))
    if not waits.any():
        return _finish(policy.decide(view), snapshot)

    def rank_running() -> IntColumn:
        # Who waits changes nothing in the order of those who run, and a decision about nobody costs little.
        return policy.decide(_without(view, jobs.state == JobState.PENDING)).notes.position

    placing = OverduePass(snapshot, rank_running, preempts=preempts)
    placing.run()
    devices = DeviceChoice(snapshot, placing)
    plan = policy.decide(_left_view(view, placing, devices))
    return _finish(unite_plans(snapshot, plan, placing, devices.of_job), snapshot)


def _finish(plan: Plan, snapshot: ClusterSnapshot) -> Plan:
    """The plan that says who is overdue, and comes to an end when somebody becomes it."""
    next_event_s, overdue = find_next_overdue_s(snapshot), snapshot.jobs.overdue
    if len(overdue) and overdue.any():
        plan = replace(plan, notes=replace(plan.notes, overdue=overdue))
    return replace(plan, next_event_s=next_event_s) if next_event_s < plan.next_event_s else plan


def _without(snapshot: ClusterSnapshot, hidden: BoolColumn) -> ClusterSnapshot:
    """The snapshot in which these jobs are not eligible."""
    jobs = snapshot.jobs
    return replace(snapshot, jobs=jobs.with_columns(state=np.where(hidden, np.int8(JobState.BLOCKED), jobs.state)))


def _left_view(snapshot: ClusterSnapshot, placing: OverduePass, devices: DeviceChoice) -> ClusterSnapshot:
    """What the policy sees: who leaves holds its places as long as it is decided on, others may not have them."""
    jobs, nodes, free = snapshot.jobs, snapshot.nodes, placing.free.now
    state = jobs.state.copy()
    state[[*placing.claims, *placing.blocked]] = JobState.BLOCKED
    state[[row for first in placing.victims for row in placing.members(first)]] = JobState.SUSPENDED
    if any(not claim.at_once for claim in placing.claims.values()):
        state[state == JobState.COMPLETING] = JobState.SUSPENDED
    nodes = replace(nodes, gpus_free=free.gpus, cpus_free=free.cpus, memory_free_mib=free.memory_mib)
    view = replace(snapshot, jobs=jobs.with_columns(state=state), nodes=nodes)
    if isinstance(view, SharingSnapshot):
        view = replace(view, devices=devices.without_taken(view.devices))
    return _with_bounds(view, placing) if placing.blocked else view


def _with_bounds(view: ClusterSnapshot, placing: OverduePass) -> ClusterSnapshot:
    """Waiting jobs that could delay a blocked one are bound to other nodes, and nobody is preempted for them.

    O(n log n) for n waiting jobs, and O(requests x kept places) looks at all nodes.
    """
    jobs, nodes = view.jobs, view.nodes
    rows = np.flatnonzero(jobs.state == JobState.PENDING)
    if not len(rows):
        return view
    starts_s = np.array(sorted(one.start_s for one in placing.future.kept))
    minded = np.searchsorted(starts_s, view.now_s + placing.stays[rows], side="left")
    makes_way = placing.requeueable[rows].astype(np.int64)  # none of them is overdue
    _, group = group_equal_rows((placing.demand.code[rows], minded, makes_way))
    node_set = jobs.node_set.copy() if len(jobs.node_set) else np.full(len(jobs), ANY_NODE, dtype=np.int64)
    may_preempt = jobs.may_preempt.copy() if len(jobs.may_preempt) else np.ones(len(jobs), dtype=np.bool_)
    sets = dict[bytes, tuple[int, BoolColumn]]()
    own = nodes.node_sets.shape[1]
    for alike in np.split(rows[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group))[:-1]):
        row = int(alike[0])
        closed, ahead = placing.find_closed(row)
        if ahead is not None:
            may_preempt[alike] = False
            placing.behind |= dict.fromkeys(alike.tolist(), ahead)
        if closed.any():
            left = placing.mask(placing.demand.shapes[int(placing.demand.code[row])]) & ~closed
            node_set[alike] = sets.setdefault(left.tobytes(), (own + len(sets), left))[0]
    flags = [*nodes.node_sets.T, *(left for _, left in sets.values())]
    columns = np.array(flags, dtype=np.bool_).reshape(len(flags), len(nodes)).T
    table = jobs.with_columns(node_set=node_set, may_preempt=may_preempt)
    return replace(view, jobs=table, nodes=replace(nodes, node_sets=columns))

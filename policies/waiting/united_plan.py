"""One plan of what overdue jobs get and of what a policy wants with the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobNotes, JobVerdict, Plan
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.policies.waiting.overdue import order_overdue
from slurm_soda.policies.waiting.overdue_pass import OverduePass


def unite_plans(
    snapshot: ClusterSnapshot, plan: Plan, placing: OverduePass, devices: Mapping[int, tuple[int, ...]]
) -> Plan:
    """The policy's plan with the overdue jobs first, less what would delay one of them.

    Args:
        snapshot: as it is.
        plan: what the policy wants of what overdue jobs leave.
        placing: what these get.
        devices: their GPUs by job id, where these are told one by one.
    """
    dropped, may_go_on = _drop_delaying(snapshot, plan, placing)
    dropped, staying = _drop_without_moves(snapshot, plan, dropped)
    job_id = snapshot.jobs.job_id
    gone = set(job_id[dropped].tolist())
    starts = [row for row, claim in placing.claims.items() if claim.at_once]
    soon = [row for row, claim in placing.claims.items() if not claim.at_once]
    policy_starts = plan.starts[~np.isin(plan.starts, job_id[dropped])]
    rest = plan.order[~np.isin(plan.order, policy_starts)]
    preempts = _preempts(snapshot, placing)
    actions = tuple(one for one in plan.actions if not isinstance(one, PreemptJob) or one.job_id not in staying)
    kept = tuple(one for one in actions if isinstance(one, PreemptJob))
    # Asked again at this instant the policy would say the same, unless something happens by this plan.
    happens = bool(starts or len(policy_starts) or preempts or kept)
    next_event_s = plan.next_event_s if happens or plan.next_event_s > snapshot.now_s else math.inf
    changes: dict[str, Any] = {
        "order": np.concatenate((job_id[starts], policy_starts, job_id[soon], job_id[placing.blocked], rest)),
        "starts": np.concatenate((job_id[starts], policy_starts)),
        "notes": _unite_notes(snapshot, plan, placing, dropped, staying),
        "actions": (*preempts, *actions),
        "next_event_s": snapshot.now_s if may_go_on else next_event_s,
        "places": {
            **{int(job_id[row]): tuple(claim.pieces) for row, claim in placing.claims.items()},
            **{one: pieces for one, pieces in plan.places.items() if one not in gone},
        },
    }
    changes["facts"] = _unite_facts(snapshot, plan, placing, len(changes["starts"]), len(preempts) + len(kept))
    if isinstance(plan, SharingPlan):
        changes["devices"] = {**devices, **{one: held for one, held in plan.devices.items() if one not in gone}}
    return replace(plan, **changes)


def _drop_delaying(snapshot: ClusterSnapshot, plan: Plan, placing: OverduePass) -> tuple[list[int], bool]:
    """Rows of jobs whose places would delay an overdue one that waits on, as others take what is left beside it; and whether
    another decision at this instant may find others for them, as something starts by this one.
    """
    jobs, dropped, started = snapshot.jobs, [], False
    if not placing.future.kept:
        return [], False
    now = set(plan.starts.tolist())
    for one, pieces in plan.places.items():
        row = jobs.row(one)
        stay = placing.stay(row)
        if not placing.future.admits(pieces, stay):
            dropped.append(row)
            continue
        placing.future.start(list(pieces), stay)
        started |= one in now
    return dropped, bool(dropped) and started


def _drop_without_moves(snapshot: ClusterSnapshot, plan: Plan, dropped: list[int]) -> tuple[list[int], set[int]]:
    """Rows that get no places, with those for which somebody should move that may not have its new places; and ids of those
    who run on, as nobody is left that they would make way for, or they would have gone to better places of their own.
    """
    jobs = snapshot.jobs
    gone = set(jobs.job_id[dropped].tolist())
    gone |= {one for each in plan.preempts if each.moves and each.job_id in gone for one in each.for_jobs}
    staying = {each.job_id for each in plan.preempts if each.for_jobs and gone.issuperset(each.for_jobs)}
    staying |= {each.job_id for each in plan.preempts if not each.for_jobs and each.job_id in gone}
    return [jobs.row(one) for one in sorted(gone | staying)], staying


def _preempts(snapshot: ClusterSnapshot, placing: OverduePass) -> tuple[PreemptJob, ...]:
    job_id, plan = snapshot.jobs.job_id, []
    for first, rows in placing.victims.items():
        ids = tuple(int(job_id[row]) for row in dict.fromkeys(rows))
        shown = ", ".join(map(str, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        who = f"job {shown}, which is" if len(ids) == 1 else f"jobs {shown}, which are"
        reason = f"its place goes to {who} overdue"
        plan += [PreemptJob(int(job_id[row]), ids, reason) for row in placing.members(first)]
    return tuple(plan)


def _unite_notes(
    snapshot: ClusterSnapshot, plan: Plan, placing: OverduePass, dropped: list[int], staying: set[int]
) -> JobNotes:
    notes, jobs = plan.notes, snapshot.jobs
    verdict, position = notes.verdict.copy(), notes.position.copy()
    waits = jobs.state[dropped] == JobState.PENDING
    verdict[np.array(dropped, dtype=np.int64)[waits]] = JobVerdict.WAIT
    verdict[np.isin(jobs.job_id, list(staying))] = JobVerdict.RUN
    verdict[placing.blocked] = JobVerdict.WAIT
    for row, claim in placing.claims.items():
        verdict[row] = JobVerdict.START if claim.at_once else JobVerdict.WAIT_FOR_PREEMPTION
    for first in placing.victims:
        verdict[list(placing.members(first))] = JobVerdict.PREEMPT
    served_first = np.zeros(len(jobs), dtype=np.bool_)
    served_first[[*placing.claims, *placing.blocked]] = True
    ordered = order_overdue(snapshot)
    first_rows = ordered[served_first[ordered]]
    position[position >= 0] += len(first_rows)
    position[first_rows] = np.arange(len(first_rows))
    reserved_in_s = notes.reserved_in_s.copy() if len(notes.reserved_in_s) else np.full(len(jobs), np.nan)
    for one in placing.future.kept:
        reserved_in_s[one.row] = one.start_s - snapshot.now_s
    behind = notes.behind.copy() if len(notes.behind) else np.zeros(len(jobs), dtype=np.int64)
    for row, ahead in placing.behind.items():
        if verdict[row] in (JobVerdict.WAIT, JobVerdict.START) and not behind[row]:
            behind[row] = jobs.job_id[ahead]
    return replace(
        notes,
        verdict=verdict,
        position=position,
        reserved_in_s=reserved_in_s if placing.future.kept else notes.reserved_in_s,
        behind=behind if behind.any() else notes.behind,
    )


def _unite_facts(
    snapshot: ClusterSnapshot, plan: Plan, placing: OverduePass, starts: int, preempts: int
) -> dict[str, float]:
    nodes, state = snapshot.nodes, snapshot.jobs.state
    return {
        **plan.facts,
        "jobs_pending": float(np.count_nonzero(state == JobState.PENDING)),
        "jobs_running": float(np.count_nonzero(state == JobState.RUNNING)),
        "jobs_overdue": float(len(placing.claims) + len(placing.blocked)),
        "gpus_free": float(nodes.gpus_free[nodes.usable].sum()),
        "starts": float(starts),
        "preempts": float(preempts),
    }

"""One plan from a decision for each array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from slurm_soda.daemon.pools.membership import PoolMembership
from slurm_soda.daemon.pools.pool_snapshots import PoolSnapshots, move_to_front, pool_turns
from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState

POOL_AWARE_POLICIES = frozenset({"coda", "soda"})
"""Policies that divide jobs and nodes themselves."""


def decide_per_pool(
    policy: Policy,
    snapshot: ClusterSnapshot,
    table: PoolTable,
    members: Mapping[int, PoolMembership],
    aborted: Sequence[int],
) -> Plan:
    """The plan of a policy for a cluster with arrays.

    A policy that knows nothing of arrays is asked about each of them apart, larger jobs' arrays first. Aborted jobs lead
    their array's order. Jobs that borrow are never preempted by a plan: Slurm itself takes back what they hold.

    Args:
        policy: decides inside each array.
        snapshot: the whole cluster.
        table: the arrays in force.
        members: of every job in an array.
        aborted: waiting jobs that gave back what they had borrowed, first submitted first.
    """
    if not members or not len(snapshot.jobs):
        return policy.decide(snapshot)
    if policy.name in POOL_AWARE_POLICIES:
        plan = policy.decide(_with_borrowers_preemptible(snapshot, members))
        return replace(plan, order=_ids(move_to_front(plan.order.tolist(), aborted)), actions=())
    ground, plans = PoolSnapshots(snapshot, table), []
    for field in pool_turns(snapshot, members):
        plan = policy.decide(ground.snapshot_for(field))
        ground.take(plan)
        plans.append(plan)
    borrowers = {job_id for job_id, member in members.items() if not member.own}
    return _merged_plan(policy.name, plans, aborted, borrowers)


def with_pool_shares(policy: Policy, shares: Mapping[NodeClass, PoolShare]) -> Policy:
    """A policy that divides nodes itself divides them as Slurm's partitions do, unless the configuration says how.

    Args:
        policy: any.
        shares: of the arrays in force; empty without any.
    """
    return replace(policy, shares=dict(shares)) if isinstance(policy, Coda) and not policy.shares else policy


def _with_borrowers_preemptible(snapshot: ClusterSnapshot, members: Mapping[int, PoolMembership]) -> ClusterSnapshot:
    """For a policy that knows arrays, a job which may be aborted is one that has a borrowing partition."""
    ids = snapshot.jobs.job_id.tolist()
    may = np.array([bool(m.borrowing) if (m := members.get(i)) else False for i in ids], dtype=np.bool_)
    return replace(snapshot, jobs=snapshot.jobs.with_columns(preemptible=may))


def _merged_plan(name: str, plans: Sequence[Plan], aborted: Sequence[int], borrowers: set[int]) -> Plan:
    order = [i for plan in plans for i in plan.order.tolist()]
    return Plan(
        policy=name,
        order=_ids(move_to_front(order, aborted)),
        starts=np.concatenate([plan.starts for plan in plans]),
        notes=_merged_notes([plan.notes for plan in plans]),
        actions=tuple(p for plan in plans for p in plan.preempts if p.job_id not in borrowers),
        promoted=np.concatenate([plan.promoted for plan in plans]),
        next_event_s=min(plan.next_event_s for plan in plans),
        places={job_id: pieces for plan in plans for job_id, pieces in plan.places.items()},
        facts=_merged_facts(plans),
    )


def _merged_notes(parts: Sequence[JobNotes]) -> JobNotes:
    """Notes in the order of job ids; positions go on from one array to the next, as Slurm tries them."""
    at = np.argsort(np.concatenate([part.job_id for part in parts]), kind="stable")
    positions, before = [], 0
    for part in parts:
        positions.append(np.where(part.position >= 0, part.position + before, part.position))
        before += int(part.position.max(initial=-1)) + 1
    reserved = [part.reserved_in_s if len(part.reserved_in_s) else np.full(len(part.job_id), np.nan) for part in parts]
    return JobNotes(
        job_id=np.concatenate([part.job_id for part in parts])[at],
        verdict=np.concatenate([part.verdict for part in parts])[at],
        queue=np.concatenate([part.queue for part in parts])[at],
        score=np.concatenate([part.score for part in parts])[at],
        position=np.concatenate(positions)[at],
        score_name=parts[0].score_name,
        reserved_in_s=np.concatenate(reserved)[at],
    )


def _merged_facts(plans: Sequence[Plan]) -> dict[str, float]:
    """Numbers of jobs add up; of what is free, every array sees its own, and the least is what nobody took."""
    facts: dict[str, float] = {}
    for plan in plans:
        for key, value in plan.facts.items():
            if key.startswith("gpus_"):
                facts[key] = min(facts.get(key, value), value)
            else:
                facts[key] = facts.get(key, 0.0) + value
    return facts


def _ids(order: Sequence[int]) -> IntColumn:
    return np.array(order, dtype=np.int64)


def waiting_aborted_jobs(snapshot: ClusterSnapshot, aborts: Mapping[int, int]) -> list[int]:
    """Waiting jobs that were aborted, first submitted first."""
    jobs = snapshot.jobs
    waits = np.flatnonzero(jobs.state == JobState.PENDING).tolist()
    rows = [row for row in waits if aborts.get(int(jobs.job_id[row]))]
    return [int(jobs.job_id[row]) for row in sorted(rows, key=lambda row: (jobs.submit_s[row], jobs.job_id[row]))]

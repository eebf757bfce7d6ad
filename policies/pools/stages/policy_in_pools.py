"""The first stage: what the policy decides, pool by pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from slurm_soda.policies.bands.decision import decide_in_bands
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.policy import DividesNodes, Policy
from slurm_soda.policies.pools.stages.membership import NO_POOL, PoolMembers, members_of
from slurm_soda.policies.pools.stages.pool_snapshots import PoolSnapshots, pool_turns
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.waiting.bounded import decide_bounded


@dataclass(frozen=True, slots=True)
class PolicyInPools:
    """Asks a policy that knows nothing of pools about each of them apart, larger jobs' pools first.

    Without pools the plan is the policy's own. Jobs that borrow are never preempted by a plan: Slurm itself takes back what
    they hold.
    """

    policy: Policy

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """What the policy decides, whatever was planned before.

        Raises:
            PolicyError: the snapshot has columns of single GPUs, which nobody divides between pools.
        """
        policy, members, shares = self.policy, members_of(snapshot), snapshot.pools.shares
        bounded = partial(decide_bounded, policy)
        if members is None and not shares:
            return decide_in_bands(policy, snapshot, bounded)
        divides = isinstance(policy, DividesNodes)
        if isinstance(policy, DividesNodes) and shares:
            policy = policy.with_shares(shares)
        if members is None:
            return decide_in_bands(policy, snapshot, partial(decide_bounded, policy))
        if divides:
            bounded = partial(decide_bounded, policy, preempts=False)
            plan = decide_in_bands(policy, _with_borrowers(snapshot, members), bounded)
            return replace(plan, actions=())
        if type(snapshot) is not ClusterSnapshot:
            raise PolicyError(f"a {type(snapshot).__name__} cannot be divided between pools")
        free, plans = PoolSnapshots(snapshot), []
        for turn in pool_turns(snapshot, members):
            plans.append(decide_in_bands(policy, free.snapshot_for(turn), bounded))
            free.take(plans[-1])
        return _merged(policy.name, plans, _borrowers(snapshot, members))


def _with_borrowers(snapshot: ClusterSnapshot, members: PoolMembers) -> ClusterSnapshot:
    """For a policy that divides nodes itself, a job which may be aborted is one that has a borrowing partition."""
    jobs = snapshot.jobs
    return replace(snapshot, jobs=jobs.with_columns(preemptible=members.borrows[jobs.partition]))


def _borrowers(snapshot: ClusterSnapshot, members: PoolMembers) -> set[int]:
    """Jobs that have no partition where nothing can abort them."""
    jobs = snapshot.jobs
    borrows = (members.pool_of(jobs.partition) != NO_POOL) & ~members.owns[jobs.partition]
    return set(jobs.job_id[borrows].tolist())


def _merged(name: str, plans: Sequence[Plan], borrowers: set[int]) -> Plan:
    return Plan(
        policy=name,
        order=np.concatenate([plan.order for plan in plans]),
        starts=np.concatenate([plan.starts for plan in plans]),
        notes=_notes([plan.notes for plan in plans]),
        actions=tuple(one for plan in plans for one in plan.preempts if one.job_id not in borrowers),
        promoted=np.concatenate([plan.promoted for plan in plans]),
        skips=np.concatenate([plan.skips for plan in plans]),
        next_event_s=min(plan.next_event_s for plan in plans),
        places={job_id: pieces for plan in plans for job_id, pieces in plan.places.items()},
        facts=_facts(plans),
    )


def _notes(parts: Sequence[JobNotes]) -> JobNotes:
    """Notes in the order of job ids; positions go on from one pool to the next, as Slurm tries them."""
    at = np.argsort(np.concatenate([part.job_id for part in parts]), kind="stable")
    positions, before = [], 0
    for part in parts:
        positions.append(np.where(part.position >= 0, part.position + before, part.position))
        before += int(part.position.max(initial=-1)) + 1
    reserved = [part.reserved_in_s if len(part.reserved_in_s) else np.full(len(part.job_id), np.nan) for part in parts]
    none = [np.zeros(len(part.job_id), dtype=np.int64) for part in parts]
    behind = [part.behind if len(part.behind) else zeros for part, zeros in zip(parts, none, strict=True)]
    unknown = [
        part.unknown_nodes if len(part.unknown_nodes) else zeros for part, zeros in zip(parts, none, strict=True)
    ]
    overdue = [part.overdue if len(part.overdue) else np.zeros(len(part.job_id), dtype=np.bool_) for part in parts]
    prices_s = [part.price_s if len(part.price_s) else np.full(len(part.job_id), np.nan) for part in parts]
    priced = any(len(part.price_s) for part in parts)
    return JobNotes(
        job_id=np.concatenate([part.job_id for part in parts])[at],
        verdict=np.concatenate([part.verdict for part in parts])[at],
        queue=np.concatenate([part.queue for part in parts])[at],
        score=np.concatenate([part.score for part in parts])[at],
        position=np.concatenate(positions)[at],
        score_name=parts[0].score_name,
        reserved_in_s=np.concatenate(reserved)[at],
        behind=np.concatenate(behind)[at],
        unknown_nodes=np.concatenate(unknown)[at],
        overdue=np.concatenate(overdue)[at],
        price_s=np.concatenate(prices_s)[at] if priced else np.zeros(0),
    )


def _facts(plans: Sequence[Plan]) -> dict[str, float]:
    """Numbers of jobs add up; of what is free, every pool sees its own, and the least is what no job took."""
    facts: dict[str, float] = {}
    for plan in plans:
        for key, value in plan.facts.items():
            if key.startswith("gpus_"):
                facts[key] = min(facts.get(key, value), value)
            else:
                facts[key] = facts.get(key, 0.0) + value
    return facts

"""The order of waiting jobs, queue by queue: each pool's own, or that of the one queue.

Policies are about GPUs: outside pools, jobs without GPUs keep Slurm's own priority.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.pipeline.actions import WHOLE_QUEUE, OrderJobs
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.pools.stages.membership import PoolGroup, members_of
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState, JobTable


@dataclass(frozen=True, slots=True)
class OrderWaitingJobs:
    """Says of each queue in which order Slurm shall try its jobs, as the plan has them by now."""

    name: str = "order"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with one :class:`.OrderJobs` for each queue."""
        jobs, members = snapshot.jobs, members_of(snapshot)
        if members is None:
            others = jobs.job_id[_waiting_besides(plan.order, jobs)]
            return replace(plan, actions=(*plan.actions, _whole_queue(plan.policy, plan.order, others, jobs)))
        ordered, others = np.searchsorted(jobs.job_id, plan.order), _waiting_besides(plan.order, jobs)
        number = members.pool_of(jobs.partition)
        orders = []
        for at in np.unique(number[np.concatenate((ordered, others))]).tolist():
            pool = members.pools[at] if at >= 0 else None
            ids = plan.order[number[ordered] == at]
            if pool is None:
                orders.append(_whole_queue(plan.policy, ids, jobs.job_id[others[number[others] == at]], jobs))
                continue
            orders.append(
                OrderJobs(
                    reason=plan.policy,
                    pool=pool.name,
                    job_ids=ids,
                    others=jobs.job_id[others[number[others] == at]],
                    reserving=_reserving(pool, ids, snapshot, plan),
                )
            )
        return replace(plan, actions=(*plan.actions, *orders))


def _whole_queue(policy: str, order: IntColumn, others: IntColumn, jobs: JobTable) -> OrderJobs:
    on_gpus = jobs.gpus[np.searchsorted(jobs.job_id, order)] > 0
    return OrderJobs(policy, WHOLE_QUEUE, order[on_gpus], others, order[~on_gpus])


def _waiting_besides(order: IntColumn, jobs: JobTable) -> IntColumn:
    """Rows of waiting jobs that are not in an order."""
    blocked = jobs.state == JobState.BLOCKED
    pending = jobs.state == JobState.PENDING
    if np.count_nonzero(pending) != len(order):  # else all of them are in it
        blocked |= pending & ~np.isin(jobs.job_id, order)
    return np.flatnonzero(blocked)


def _reserving(pool: PoolGroup, order: IntColumn, snapshot: ClusterSnapshot, plan: Plan) -> int:
    """How many at the head pass smaller jobs too: the next job, if it has waited long, and those before it."""
    if pool.kind is PoolKind.CPU:
        return 0
    waits = np.flatnonzero(~np.isin(order, plan.starts))
    if not len(waits):
        return 0
    at, jobs = int(waits[0]), snapshot.jobs
    return at + 1 if jobs.waited_s[jobs.row(int(order[at]))] >= snapshot.pools.reserve_after_s else 0

"""SiteFactors for a cluster with arrays: each array keeps its own order, in its own band of priorities.

Jobs of different arrays are in different partitions: nothing is written to order them against each other. The bands serve
backfill. A job for which Slurm books nodes books whole ones, whatever it needs of them: a CPU job that lists its array's
partition and the one where it borrows so keeps itself out of the second, and a GPU job keeps CPU jobs from cores that they
would give back in time. So with ``bf_min_prio_reserve`` in Slurm's configuration, at :data:`BF_MIN_PRIO_RESERVE`, nobody
reserves nodes but the next GPU job of a pool that has waited long: without it, a gang might never find enough GPUs free at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from slurm_soda.daemon.pools.job_table_rows import select_rows
from slurm_soda.daemon.pools.membership import PoolGroup, PoolMembership
from slurm_soda.daemon.pools.pool_snapshots import pool_turns
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobTable
from slurm_soda.slurm_ext.write.job_changes import DEFAULT_PRIORITY_BASE, JobChange, order_changes
from slurm_soda.slurm_ext.write.site_factors import PRIORITY_CEILING

BF_MIN_PRIO_RESERVE = 1_000_000_000
"""Priority from which Slurm may book nodes for a waiting job; ``sodactl pools apply`` sets bf_min_prio_reserve to it."""


def priority_ceiling(group: PoolGroup | None) -> int:
    """No job of the array that books nothing gets a larger priority."""
    return PRIORITY_CEILING if group is None else BF_MIN_PRIO_RESERVE - 1


def pool_order_changes(
    snapshot: ClusterSnapshot, plan: Plan, members: Mapping[int, PoolMembership], *, depth: int, reserve_after_s: float
) -> list[JobChange]:
    """The changes after which every array is in the plan's order, for its first ``depth`` jobs.

    Args:
        snapshot: the whole cluster.
        plan: the order, jobs of all arrays in one.
        members: of every job in an array.
        depth: of each array.
        reserve_after_s: the next GPU job of an array may book nodes once it has waited so long.
    """
    rows_of: dict[PoolGroup | None, list[int]] = {}
    for field in pool_turns(snapshot, members):
        rows_of.setdefault(field.group, []).extend(field.rows.tolist())
    changes: list[JobChange] = []
    for group, rows in rows_of.items():
        jobs = select_rows(snapshot.jobs, np.sort(np.array(rows, dtype=np.int64)))
        order = plan.order[np.isin(plan.order, jobs.job_id)]
        booking = _jobs_that_may_reserve(group, jobs, order, plan, reserve_after_s)
        part = replace(snapshot, jobs=select_rows(jobs, np.flatnonzero(np.isin(jobs.job_id, booking)).astype(np.int64)))
        changes += order_changes(
            part, replace(plan, order=booking), depth=depth, base=BF_MIN_PRIO_RESERVE, least=BF_MIN_PRIO_RESERVE
        )
        rest = replace(
            snapshot, jobs=select_rows(jobs, np.flatnonzero(~np.isin(jobs.job_id, booking)).astype(np.int64))
        )
        changes += order_changes(
            rest,
            replace(plan, order=order[len(booking) :]),
            depth=depth,
            base=DEFAULT_PRIORITY_BASE,
            ceiling=priority_ceiling(group),
        )
    return changes


def _jobs_that_may_reserve(
    group: PoolGroup | None, jobs: JobTable, order: IntColumn, plan: Plan, reserve_after_s: float
) -> IntColumn:
    """The head of an array's order for which Slurm may book: its next job, if it has waited long, and those before it."""
    none = order[:0]
    if group is None or group.kind is PoolKind.CPU:
        return none
    waits = np.flatnonzero(~np.isin(order, plan.starts))
    if not len(waits):
        return none
    at = int(waits[0])
    return order[: at + 1] if jobs.waited_s[jobs.row(int(order[at]))] >= reserve_after_s else none

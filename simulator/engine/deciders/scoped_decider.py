"""A policy beside Slurm: it changes the order of jobs in scope and has jobs of the scope make way; Slurm starts jobs.

Elsewhere in the simulator a policy starts jobs itself. Here its plan goes the way that it goes in sodad: by the scope, then
the actuator, to SiteFactors, with which stock Slurm (``multifactor``) decides on all jobs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from slurm_soda.policies.baselines.multifactor import Multifactor
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobTable
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload
from slurm_soda.slurm_ext.write.job_changes import order_changes

STOCK_RESERVATIONS = 10
"""As of ``multifactor`` where it stands for the present: Slurm's backfill keeps room for the first blocked jobs."""


class ScopedDecider(SnapshotDecider):
    """Snapshots in which some jobs are out of scope."""

    def __init__(
        self, policy: Policy, workload: Workload, cluster: SimulatedCluster, *, scope: Scope, **more: Any
    ) -> None:
        """``more``: as of a :class:`SnapshotDecider`.

        Raises:
            SimulatorError: the scope names accounts, which no trace has.
        """
        super().__init__(policy, workload, cluster, **more)
        self._left_out = find_left_out(workload, scope)
        self._stock = Multifactor(reservations=STOCK_RESERVATIONS)

    def plan(self, snapshot: ClusterSnapshot) -> Plan:
        """What Slurm starts with the order that the policy's plan makes, and the preemptions of that plan."""
        wanted = super().plan(snapshot)
        jobs = snapshot.jobs
        priority = jobs.priority.copy()
        for change in order_changes(wanted, snapshot, skipping_limit_s=0.0):
            priority[jobs.row(change.job_id)] += int(change.new["SiteFactor"])
        started = self._stock.decide(replace(snapshot, jobs=jobs.with_columns(priority=priority)))
        return replace(
            started,
            actions=wanted.preempts,
            promoted=wanted.promoted,
            next_event_s=min(started.next_event_s, wanted.next_event_s),
        )

    def _table(self, now_s: float, rows: IntColumn) -> JobTable:
        return super()._table(now_s, rows).with_columns(left_out=self._left_out[rows])


def find_left_out(workload: Workload, scope: Scope) -> IntColumn:
    """Why jobs are not in scope, by row.

    Raises:
        SimulatorError: the scope names accounts, which no trace has.
    """
    if scope.accounts:
        raise SimulatorError(
            "a scope of accounts cannot be simulated: jobs of a trace have none; name users or partitions"
        )
    names = (workload.partitions, workload.qos_names, workload.users)
    codes = zip(workload.partition.tolist(), workload.qos.tolist(), workload.user.tolist(), strict=True)
    known: dict[tuple[int, ...], int] = {}
    found = []
    for row in codes:
        if row not in known:
            partition, qos, user = (of[code] if code >= 0 else "" for of, code in zip(names, row, strict=True))
            known[row] = int(scope.leaves_out(partition, "", qos, user))
        found.append(known[row])
    return np.array(found, dtype=np.int64)

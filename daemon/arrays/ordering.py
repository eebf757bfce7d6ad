"""SiteFactors for a cluster with arrays: each array keeps its own order, in its own band of priorities.

Jobs of different arrays are never compared by Slurm (they are in different partitions), so nothing is written to order
them. The bands serve backfill: a job that lists its array's partition and the one where it borrows would book whole nodes
for the first and so keep itself out of the second. ``bf_min_prio_reserve`` in Slurm's configuration, at the lower end of the
GPU arrays' band, lets GPU jobs book, whose gangs need it, and CPU jobs not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from slurm_soda.daemon.arrays.fields import fields_of
from slurm_soda.daemon.arrays.groups import Group, Membership
from slurm_soda.daemon.arrays.rows import only_rows
from slurm_soda.policies.arrays.kinds import ArrayKind
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.actuator import DEFAULT_BASE, Change, order_changes
from slurm_soda.slurm_ext.ordering import PRIORITY_CEILING

RESERVING_FROM = 1_000_000_000
"""Priority from which Slurm may book nodes for a waiting job; ``sodactl arrays apply`` sets bf_min_prio_reserve to it."""


def ceiling_of(group: Group | None) -> int:
    """No job of the array gets a larger priority."""
    return RESERVING_FROM - 1 if group is not None and group.kind is ArrayKind.CPU else PRIORITY_CEILING


def array_order_changes(
    snapshot: ClusterSnapshot, plan: Plan, members: Mapping[int, Membership], *, depth: int
) -> list[Change]:  # fmt: skip
    """The changes after which every array is in the plan's order, for its first ``depth`` jobs."""
    rows_of: dict[Group | None, list[int]] = {}
    for field in fields_of(snapshot, members):
        rows_of.setdefault(field.group, []).extend(field.rows.tolist())
    changes: list[Change] = []
    for group, rows in rows_of.items():
        jobs = only_rows(snapshot.jobs, np.sort(np.array(rows, dtype=np.int64)))
        part = replace(plan, order=plan.order[np.isin(plan.order, jobs.job_id)])
        reserving = group is not None and group.kind is not ArrayKind.CPU
        changes += order_changes(
            replace(snapshot, jobs=jobs), part, depth=depth, base=RESERVING_FROM if reserving else DEFAULT_BASE,
            least=RESERVING_FROM if reserving else 0, ceiling=ceiling_of(group),
        )  # fmt: skip
    return changes

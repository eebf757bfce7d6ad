"""Jobs that fit and that Slurm may all the same not start: a waiting job stays before them in its order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slurm_soda.policies.engine.lift_bounds import LEAST_PRIORITY, JobKeys, find_tie_places
from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, ClusterSnapshot, IntColumn
from slurm_soda.slurm_ext.write.job_changes import JobChange


def find_jobs_ahead(plan: Plan, snapshot: ClusterSnapshot, orders: Iterable[JobChange]) -> IntColumn:
    """For each job of the plan's notes that shall start, the first job before it in Slurm's order that does not fit and may
    take its nodes; by id, 0 for none. What the notes say of other jobs stays.

    Args:
        plan: with a verdict on each job of the snapshot.
        snapshot: what it was made from.
        orders: the changes of SiteFactors that it leads to.
    """
    jobs, verdict = snapshot.jobs, plan.notes.verdict
    ahead = plan.notes.behind.copy() if len(plan.notes.behind) else np.zeros(len(jobs), dtype=np.int64)
    rows = np.arange(len(jobs))
    factor = np.where(jobs.site_factor == UNKNOWN_SITE_FACTOR, 0, jobs.site_factor)
    priority = jobs.priority.copy()
    for change in orders:
        row = jobs.row(change.job_id)
        priority[row] = max(priority[row] + int(change.new["SiteFactor"]) - factor[row], LEAST_PRIORITY)
    keys = JobKeys.of(priority, rows, jobs.partition, find_tie_places(jobs)).keys
    starts, waits = rows[verdict == JobVerdict.START], rows[verdict == JobVerdict.WAIT]
    if not len(starts) or not len(waits):
        return ahead
    groups = SharedNodes.of(np.unique(jobs.partition[np.concatenate((starts, waits))]), snapshot)
    waits = waits[np.argsort(keys[waits])]
    first = dict(
        zip(jobs.partition[waits].tolist(), waits.tolist(), strict=True)
    )  # the last one counts: the largest key
    for partition in np.unique(jobs.partition[starts]).tolist():
        rivals = groups.rivals(partition)
        head = max((row for other, row in first.items() if rivals[other]), key=keys.item, default=-1)
        if head >= 0:
            alike = starts[jobs.partition[starts] == partition]
            ahead[alike[keys[alike] < keys[head]]] = jobs.job_id[head]
    return ahead

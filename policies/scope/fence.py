"""The fence: jobs out of scope that wait, past which Slurm's order of jobs in scope is not changed."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.engine.lift_bounds import JobKeys, find_bounds, find_natural_priorities, find_tie_places
from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.snapshot import (
    UNKNOWN_SITE_FACTOR,
    BoolColumn,
    ClusterSnapshot,
    IntColumn,
    JobState,
    JobTable,
)


def find_fence(jobs: JobTable) -> IntColumn:
    """Rows of waiting jobs out of scope of which Slurm tells a priority: others are held, or wait for something else."""
    if not len(jobs.left_out):
        return np.zeros(0, dtype=np.int64)
    waits = (jobs.state == JobState.PENDING) | (jobs.state == JobState.BLOCKED)
    return np.flatnonzero(waits & (jobs.left_out > 0) & (jobs.site_factor != UNKNOWN_SITE_FACTOR))


def find_fence_bounds(keys: JobKeys, asking: BoolColumn, fence: IntColumn, snapshot: ClusterSnapshot) -> IntColumn:
    """For each asking job the least key above its own of a job of the fence that may take the same nodes; the largest
    number where there is none.

    Args:
        keys: jobs in scope, with their own priorities.
        asking: those for whom a bound is wanted.
        fence: rows; each counts with the priority that Slurm has for it now, which includes what the site added.
        snapshot: of all of them.
    """
    if not len(fence):
        return np.full(len(keys.keys), np.iinfo(np.int64).max)
    jobs = snapshot.jobs
    both = keys.joined(JobKeys.of(jobs.priority[fence], fence, jobs.partition[fence], find_tie_places(jobs)))
    inside = np.arange(len(both.keys)) < len(keys.keys)
    asks = np.concatenate((asking, np.zeros(len(fence), dtype=np.bool_)))
    groups = SharedNodes.of(np.unique(both.partition), snapshot)
    rank = inside.astype(np.int64)
    return find_bounds(both, groups, asking=asks, rank=rank, bounding=~inside, bounding_rank=rank)[: len(keys.keys)]


def behind_fence(snapshot: ClusterSnapshot, rows: IntColumn, fence: IntColumn) -> BoolColumn:
    """Whether Slurm has a job of the fence before each of these, with its own priority, for the same nodes."""
    if not len(fence):
        return np.zeros(len(rows), dtype=np.bool_)
    jobs = snapshot.jobs
    keys = JobKeys.of(find_natural_priorities(jobs)[rows], rows, jobs.partition[rows], find_tie_places(jobs))
    bounds = find_fence_bounds(keys, np.ones(len(rows), dtype=np.bool_), fence, snapshot)
    found: BoolColumn = bounds < np.iinfo(np.int64).max
    return found

"""Remaining work of jobs as a few equally likely values each."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.run_times.remaining_time_curve import EDGES_S, accumulate, find_passed, find_quantiles_s
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn

VALUES = 12
"""Values of each job."""
_SHARES: FloatColumn = (np.arange(VALUES) + 0.5) / VALUES


def expect_remaining_s(snapshot: ClusterSnapshot, rows: IntColumn) -> FloatColumn:
    """Run time left alone to jobs by row; shape (rows, :data:`VALUES`), ascending, or (rows, 1) where all are points.

    The quantiles of what was learned for its kind, given what it has done; its ``remaining_s`` alone for a job of which that
    says all there is. O(rows x bins).
    """
    expected, points = snapshot.run_times, snapshot.jobs.remaining_s[rows][:, None]
    learned = np.flatnonzero(expected.kind[rows] >= 0) if len(expected.kind) else rows[:0]
    if not len(learned):
        return points
    found: FloatColumn = np.repeat(points, VALUES, axis=1)
    mine = rows[learned]
    worked_s = np.minimum(np.maximum(expected.worked_s[mine], 0.0), EDGES_S[-1])
    past = accumulate(expected.probability)[expected.kind[mine]]
    done = find_passed(past, worked_s)
    wanted = done[:, None] + (past[:, -1] - done)[:, None] * _SHARES
    found[learned] = np.maximum(find_quantiles_s(past, wanted) - worked_s[:, None], 1.0)
    return found

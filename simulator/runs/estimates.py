"""What policies are told about run times."""

from __future__ import annotations

import numpy as np

from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload

PREDICTED = "predicted"
ESTIMATES = ("trace", "exact", "limit", PREDICTED, "none")
"""What policies are told about run times: what the trace says, the truth, the job's time limit, a prediction from jobs that
have ended, or nothing."""


def with_estimates(workload: Workload, estimates: str) -> Workload:
    """The workload with other estimates, one of :data:`ESTIMATES`; to predict, its scenario must say so as well.

    Raises:
        SimulatorError: no such kind of estimates.
    """
    if estimates == "trace":
        return workload
    if estimates in ("exact", PREDICTED):
        return workload.with_columns(expected_s=workload.run_s)
    if estimates == "limit":
        limit_s = workload.time_limit_s
        return workload.with_columns(expected_s=np.where(np.isfinite(limit_s), limit_s, np.nan))
    if estimates == "none":
        return workload.with_columns(expected_s=np.full(len(workload), np.nan))
    raise SimulatorError(f"there are no estimates {estimates!r}; choose one of: {', '.join(ESTIMATES)}")

"""A prediction of a running job stands until the job has outlived it."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.policies.snapshot_file.identifiers import JobIdColumn


class StandingPredictions:
    """What was predicted of each job when it first ran, or when it outlived its last prediction.

    The expected time left of a job grows while it runs, as those that last are the long ones, and a little with each job
    that ends and teaches something. Who sorts by it as it is at each instant lets jobs take turns: each one that runs
    comes to rank behind the next one, gives its place to that one, and none of them ends soon. So what was predicted stays:
    less is left the longer a job runs, as if its run time were known. A job that runs on when nothing is left is predicted
    anew, given what it ran for. As predictions are medians, half of the jobs outlive their first one, a quarter the second:
    one new prediction a job, in the mean, where predictions are right in the mean.

    A job that has not run yet is predicted anew each time.
    """

    def __init__(self) -> None:
        self._job_id: JobIdColumn = np.zeros(0, dtype=np.int64)
        self._total_s: FloatColumn = np.zeros(0)
        """Whole run times of these jobs, NaN of those that have not run."""

    def remaining(self, job_id: JobIdColumn, attained_s: FloatColumn, predicted_s: FloatColumn) -> FloatColumn:
        """Run time left of each listed job, above 0; O(n log n). Jobs that are not listed are forgotten.

        Args:
            job_id: ascending.
            attained_s: what each has run for.
            predicted_s: what is predicted now to be left, above 0; NaN where nothing is.
        """
        total_s = np.full(len(job_id), np.nan)
        if len(self._job_id):
            at = np.minimum(np.searchsorted(self._job_id, job_id), len(self._job_id) - 1)
            total_s = np.where(self._job_id[at] == job_id, self._total_s[at], np.nan)
        total_s = np.where(attained_s < total_s, total_s, attained_s + predicted_s)
        self._job_id, self._total_s = job_id, np.where(attained_s > 0, total_s, np.nan)
        left_s: FloatColumn = total_s - attained_s
        return left_s

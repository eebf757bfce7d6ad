"""Jobs that have not ended, as what they tell of run times: each has reached a bin."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.run_times.histograms import Histogram
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.policies.run_times.remaining_time_curve import EDGES_S, find_bins
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.policies.snapshot_file.identifiers import JobIdColumn


class ReachedBin(NamedTuple):
    """A job has come from one bin to a later one."""

    row: int
    """In the table of those that are listed."""
    before: int
    now: int


class RunningJobs:
    """Tells a learner of jobs that have not ended what they have run for so far, also of those that were preempted.

    A job counts from its first second on until it is not listed any more, as then it has ended. The learner hears of it
    each time that it is seen to have reached another bin: some 45 times in its first hour, 18 times in the day after.
    """

    def __init__(self, learner: RunTimeLearner) -> None:
        self._learner = learner
        self._job_id: JobIdColumn = np.zeros(0, dtype=np.int64)
        self._reached: IntColumn = np.zeros(0, dtype=np.int64)
        self._counts: dict[int, tuple[str, list[tuple[Histogram, int]]]] = {}
        """Owner of each job that counts, and where it does."""

    def __len__(self) -> int:
        return len(self._counts)

    def observe(
        self, job_id: JobIdColumn, attained_s: FloatColumn, traits: Callable[[int], SubmissionTraits]
    ) -> list[ReachedBin]:
        """Take in what each listed job has run for; who has reached another bin.

        Args:
            job_id: ascending.
            attained_s: what each has run for.
            traits: of a row of these.

        Complexity: O(n log n), and some 0.01 ms for each job that has reached another bin.
        """
        before = np.zeros(len(job_id), dtype=np.int64)
        if len(self._job_id):
            at = np.minimum(np.searchsorted(self._job_id, job_id), len(self._job_id) - 1)
            before = np.where(self._job_id[at] == job_id, self._reached[at], 0)
        begun = np.flatnonzero((attained_s >= EDGES_S[1]) | (before > 0))
        ids, before = job_id[begun], before[begun]
        # A job that lost work needed it nevertheless.
        reached = np.maximum(find_bins(attained_s[begun]), before)
        gone = ~np.isin(self._job_id, ids, assume_unique=True)
        for job, was in zip(self._job_id[gone].tolist(), self._reached[gone].tolist(), strict=True):
            owner, counts = self._counts.pop(job)
            self._learner.move(owner, counts, was, 0)
        moves = []
        for each in np.flatnonzero(reached > before).tolist():
            job, row = int(ids[each]), int(begun[each])
            if not before[each]:
                its = traits(row)
                self._counts[job] = (its.owner, self._learner.begin(its))
            moves.append(ReachedBin(row, int(before[each]), int(reached[each])))
            owner, counts = self._counts[job]
            self._learner.move(owner, counts, moves[-1].before, moves[-1].now)
        self._job_id, self._reached = ids, reached
        return moves

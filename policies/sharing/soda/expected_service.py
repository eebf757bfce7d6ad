"""Expected service: GPUs x the rank of what is left of a job's run time, in GPU seconds. ``soda`` orders jobs by it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.gittins_rank import find_ranks
from slurm_soda.policies.sharing.soda.preemption_price import find_start_costs_s
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable


@dataclass(frozen=True, slots=True)
class ServiceRule:
    """How it is found.

    Attributes:
        change_s: what it costs to start a job of which nothing is known.
        resolution: the learned rank of a running job counts as so many times smaller.
    """

    change_s: float
    resolution: float

    def find(self, snapshot: ClusterSnapshot, prices_s: FloatColumn) -> FloatColumn:
        """By row: of a running job if it goes on, of others if they start, which costs their price."""
        jobs = snapshot.jobs
        runs = jobs.state == JobState.RUNNING
        cost_s = np.where(runs, 0.0, find_start_costs_s(prices_s, self.change_s))
        present_s = np.where(runs, snapshot.now_s - jobs.start_s, 0.0)
        return self._find(jobs, snapshot.run_times, runs, cost_s, present_s)

    def find_started(self, snapshot: ClusterSnapshot, rows: IntColumn, after_s: FloatColumn) -> FloatColumn:
        """Of these waiting jobs, rows ascending, what it is once each has run for so long."""
        jobs, run_times = snapshot.jobs.only(rows), snapshot.run_times.only(rows)
        jobs = jobs.with_columns(
            executed_s=jobs.executed_s + after_s, remaining_s=np.maximum(jobs.remaining_s - after_s, 0.0)
        )
        if len(run_times.kind):
            run_times = replace(run_times, worked_s=run_times.worked_s + after_s)
        return self._find(jobs, run_times, np.ones(len(rows), dtype=np.bool_), np.zeros(len(rows)), after_s)

    def _find(
        self, jobs: JobTable, run_times: ExpectedRunTimes, runs: BoolColumn, cost_s: FloatColumn, present_s: FloatColumn
    ) -> FloatColumn:
        ranks = find_ranks(run_times, jobs.remaining_s, jobs.executed_s, cost_s, jobs.preemptible)
        most_s = np.maximum(jobs.time_limit_s - present_s, 1.0) + cost_s
        learned = np.isnan(jobs.remaining_s)
        if len(run_times.kind):
            learned |= run_times.kind >= 0
        ranks = np.where(runs & learned, ranks / self.resolution, ranks)
        service: FloatColumn = np.fmin(ranks, most_s) * jobs.gpus
        return service

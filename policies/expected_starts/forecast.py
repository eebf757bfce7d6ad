"""When waiting jobs are expected to start: the middle and the ends of an interval, from many possible futures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.expected_starts.forward_pass import ForwardPasses, PossibleFuture
from slurm_soda.policies.expected_starts.run_time_draws import draw_remaining_s
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn
from slurm_soda.policies.snapshot_file.identifiers import JobIdColumn

QUANTILES = (0.1, 0.5, 0.9)
"""Of the futures: an interval from the first to the last of these is to hold 80 % of the true starts."""
INTERVAL_RATIO = QUANTILES[-1] - QUANTILES[0]

MOST_DRAWS, LEAST_DRAWS, JOBS_DRAWN = 40, 8, 100_000
"""Futures of one forecast. Where many wait there are fewer: what is drawn for each job averages out in a long queue."""
_EVENTS_A_STEP = 500


@dataclass(frozen=True, slots=True)
class StartForecast:
    """Seconds from ``now_s`` to the start of each job, by job: quantiles :data:`QUANTILES`; infinite: perhaps never."""

    now_s: float
    job_id: JobIdColumn
    low_s: FloatColumn
    median_s: FloatColumn
    high_s: FloatColumn


class ForecastInProgress:
    """A forecast that is made a few futures at a time, as a daemon has other things to do.

    The same snapshot, plan and seed give the same forecast, to the bit, however it is divided.
    """

    def __init__(self, snapshot: ClusterSnapshot, plan: Plan | None, seed: int) -> None:
        """Without a plan Slurm's own priorities are the order."""
        self._snapshot, self._passes = snapshot, ForwardPasses(snapshot, plan)
        waiting = len(self._passes.rows)
        draws = min(max(JOBS_DRAWN // max(waiting, 1), LEAST_DRAWS), MOST_DRAWS) if waiting else 0
        self._left_s = draw_remaining_s(snapshot, draws, seed)
        self._starts_s: list[FloatColumn] = []
        self._future: PossibleFuture | None = None

    @property
    def complete(self) -> bool:
        """Nothing is left to do."""
        return len(self._starts_s) == len(self._left_s)

    def step(self) -> None:
        """A part of one more future, some 10 ms."""
        if self._future is None:
            self._future = self._passes.begin(self._left_s[len(self._starts_s)])
        if self._future.advance(_EVENTS_A_STEP):
            self._starts_s.append(self._future.starts_s)
            self._future = None

    def result(self) -> StartForecast:
        """What was found, of all jobs that wait and can start some day."""
        job_id = self._snapshot.jobs.job_id[self._passes.rows]
        if not self._starts_s:
            none = np.zeros(0)
            return StartForecast(self._snapshot.now_s, job_id[:0], none, none, none)
        # Numbers between two futures would be infinite where one of the two is.
        ends = np.quantile(np.stack(self._starts_s), QUANTILES, axis=0, method="nearest")
        return StartForecast(self._snapshot.now_s, job_id, *ends)


def forecast_starts(snapshot: ClusterSnapshot, plan: Plan | None, seed: int) -> StartForecast:
    """The whole forecast at once.

    Complexity: :data:`MOST_DRAWS` futures at most, each O(n log n) in jobs, times the number of different requests.
    """
    forecast = ForecastInProgress(snapshot, plan, seed)
    while not forecast.complete:
        forecast.step()
    return forecast.result()

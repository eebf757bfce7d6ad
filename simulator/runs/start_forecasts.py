"""Forecasts of starts while a simulation runs, made as sodad makes them, and how often they were right."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from slurm_soda.policies.expected_starts.calibration import WINDOW, IntervalScore, StartCalibration, StartOutcome
from slurm_soda.policies.expected_starts.forecast import StartForecast, forecast_starts
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.snapshot import SharesWherePossiblePolicy, SharingPolicy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState

FORECAST_EVERY_S = 600.0
"""Pause between forecasts at least; the first of a job is made with the next one."""
REPEAT_EVERY_S = 3600.0
"""So often is a job's forecast kept again while it waits."""


@dataclass(slots=True)
class _OpenForecast:
    job_id: int
    at_s: float
    drawn_s: tuple[float, float, float]
    calibrated_s: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class ForecastReport:
    """How right the forecasts of one run were."""

    calibrated: IntervalScore
    """As people would have been told, changed by what came of those before."""
    drawn: IntervalScore
    """As they were before that."""
    median_error_ratio: float
    """Half of the true waits were within this factor of the middle of the interval, each counted from a minute up."""
    width_ratio: float
    """The end of the median interval over its beginning, counted in the same way."""

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "forecasts": self.calibrated.forecasts,
            "held_ratio": self.calibrated.held_ratio,
            "earlier_ratio": self.calibrated.earlier_ratio,
            "later_ratio": self.calibrated.later_ratio,
            "uncalibrated_held_ratio": self.drawn.held_ratio,
            "median_error_ratio": self.median_error_ratio,
            "width_ratio": self.width_ratio,
        }


class ForecastingPolicy:
    """A policy whose starts are forecast; one object serves one run, and needs whole snapshots."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.name, self._policy, self._seed = policy.name, policy, seed
        self._open: dict[int, list[_OpenForecast]] = {}
        """Of jobs that wait, by job."""
        self._resolved: deque[StartOutcome] = deque(maxlen=WINDOW)
        self.outcomes: list[StartOutcome] = []
        self._next_s = -math.inf
        self._rounds = 0

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides."""
        self._resolve(snapshot)
        plan = self._policy.decide(snapshot)
        if snapshot.now_s >= self._next_s and len(plan.order) > len(plan.starts):
            self._next_s = snapshot.now_s + FORECAST_EVERY_S
            self._forecast(snapshot, plan)
        return plan

    def _forecast(self, snapshot: ClusterSnapshot, plan: Plan) -> None:
        self._rounds += 1
        drawn = forecast_starts(snapshot, plan, self._seed + self._rounds)
        told = StartCalibration(self._known(snapshot.now_s)).apply(drawn)
        for place, job_id in enumerate(drawn.job_id.tolist()):
            kept = self._open.get(job_id)
            if drawn.high_s[place] == 0.0 or (kept and snapshot.now_s < kept[-1].at_s + REPEAT_EVERY_S):
                continue
            made = _OpenForecast(job_id, snapshot.now_s, _ends(drawn, place), _ends(told, place))
            self._open.setdefault(job_id, []).append(made)

    def _known(self, now_s: float) -> list[StartOutcome]:
        """Outcomes so far, and of those that wait for longer than was told what is known now."""
        late = [
            StartOutcome(one.drawn_s, one.calibrated_s, now_s - one.at_s)
            for kept in self._open.values()
            for one in kept
            if now_s - one.at_s > one.calibrated_s[2]
        ]
        return [*self._resolved, *late]

    def _resolve(self, snapshot: ClusterSnapshot) -> None:
        jobs = snapshot.jobs
        for row in np.flatnonzero(jobs.state == JobState.RUNNING).tolist():
            for one in self._open.pop(int(jobs.job_id[row]), ()):
                outcome = StartOutcome(one.drawn_s, one.calibrated_s, float(jobs.start_s[row]) - one.at_s)
                self._resolved.append(outcome)
                self.outcomes.append(outcome)

    def report(self) -> ForecastReport:
        """After the run."""
        return report_outcomes(self.outcomes)


class SharingForecastingPolicy(ForecastingPolicy):
    """The same of a policy that shares."""

    def __init__(self, policy: SharingPolicy, seed: int) -> None:
        super().__init__(policy, seed)
        self.jobs_per_gpu = policy.jobs_per_gpu
        if isinstance(policy, SharesWherePossiblePolicy):
            self.shares_where_possible: Literal[True] = True


def forecast_starts_of(policy: Policy, seed: int) -> ForecastingPolicy:
    """The policy, with forecasts."""
    if isinstance(policy, SharingPolicy):
        return SharingForecastingPolicy(policy, seed)
    return ForecastingPolicy(policy, seed)


def report_outcomes(outcomes: list[StartOutcome]) -> ForecastReport:
    """How right they were."""
    drawn = [one._replace(calibrated_s=one.drawn_s).side for one in outcomes]
    told = IntervalScore.of([one.side for one in outcomes])
    finite = [one for one in outcomes if math.isfinite(one.calibrated_s[2])]
    if not finite:
        return ForecastReport(told, IntervalScore.of(drawn), math.nan, math.nan)
    waits = np.log(np.array([one.waited_s for one in finite]) + 60.0)
    ends = np.log(np.array([one.calibrated_s for one in finite]) + 60.0)
    error = float(np.exp(np.median(np.abs(waits - ends[:, 1]))))
    return ForecastReport(told, IntervalScore.of(drawn), error, float(np.exp(np.median(ends[:, 2] - ends[:, 0]))))


def _ends(forecast: StartForecast, place: int) -> tuple[float, float, float]:
    return float(forecast.low_s[place]), float(forecast.median_s[place]), float(forecast.high_s[place])

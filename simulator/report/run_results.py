"""Outcomes reduced to what tables and pictures show: small enough to travel between processes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.charts.curves import Distribution, UsageCurve, make_distribution
from slurm_soda.simulator.report.charts.gantt import GanttChart
from slurm_soda.simulator.report.charts.sharing_gantt import make_gantt
from slurm_soda.simulator.report.sharing_summary import gpu_usage_curve
from slurm_soda.simulator.report.soda_figures import SodaCurves, make_soda_curves
from slurm_soda.simulator.report.summary import RunSummary, jct_s, queue_s, slowdowns, summarise
from slurm_soda.simulator.services.record import ServicesRecord


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One policy's run of one workload."""

    policy: str
    seed: int | None
    """Of the generated workload; None for a trace."""
    summary: RunSummary
    jct_s: FloatColumn
    """NaN for jobs that never ended."""
    queue_s: FloatColumn
    slowdown: FloatColumn
    """As in :func:`~slurm_soda.simulator.report.paired_statistics.bounded_slowdown`."""
    user: IntColumn
    """Number of each job's user; -1: nobody knows."""
    gpus: UsageCurve
    lanes: GanttChart | None
    """None for a run too large to read as a chart."""
    site: SodaCurves | None = None
    """None where nodes had no part in speed."""
    services: ServicesRecord | None = None
    """None where there were no services."""


def reduce_outcome(
    outcome: SimulationOutcome, policy: str, seed: int | None = None, *, charts: bool = True
) -> SimulatedRun:
    """What reports need of an outcome, under the policy's name as the user typed it."""
    waits_s = queue_s(outcome)
    return SimulatedRun(
        policy=policy,
        seed=seed,
        summary=summarise(outcome),
        jct_s=jct_s(outcome),
        queue_s=waits_s,
        slowdown=slowdowns(outcome),
        user=outcome.workload.user,
        gpus=gpu_usage_curve(outcome),
        lanes=make_gantt(outcome) if charts else None,
        site=make_soda_curves(outcome, waits_s),
        services=outcome.services,
    )


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that did not come to an end."""

    policy: str
    """As the user typed it."""
    seed: int | None
    """Of the generated workload; None for a trace."""
    reason: str
    """One line."""

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.policy}{seed}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """One policy over all seeds, at least one."""

    policy: str
    runs: tuple[SimulatedRun, ...]

    def values(self, key: str) -> list[float]:
        """A figure of :class:`~slurm_soda.simulator.report.summary.RunSummary`, one a seed."""
        return [float(getattr(run.summary, key)) for run in self.runs]

    def mean(self, key: str) -> float:
        """Mean over the seeds."""
        return math.fsum(self.values(key)) / len(self.runs)

    def spread(self, key: str) -> float:
        """Sample standard deviation over the seeds; 0 for one seed."""
        values = self.values(key)
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    def of_seeds(self, seeds: Collection[int | None]) -> PolicyRuns | None:
        """The runs of these seeds only; None: there are none."""
        kept = tuple(run for run in self.runs if run.seed in seeds)
        return PolicyRuns(self.policy, kept) if kept else None

    @property
    def jct(self) -> Distribution:
        """JCTs of the jobs of all seeds."""
        return make_distribution(np.concatenate([run.jct_s for run in self.runs]))

    @property
    def queue(self) -> Distribution:
        """Waits of the jobs of all seeds."""
        return make_distribution(np.concatenate([run.queue_s for run in self.runs]))


def on_same_seeds(first: PolicyRuns, other: PolicyRuns) -> tuple[PolicyRuns, PolicyRuns] | None:
    """Both over the seeds that both ran, as a run may have failed; None: there is no such seed."""
    seeds = {run.seed for run in first.runs} & {run.seed for run in other.runs}
    ours, theirs = first.of_seeds(seeds), other.of_seeds(seeds)
    return (ours, theirs) if ours and theirs else None


def times_better(first: PolicyRuns, other: PolicyRuns, key: str = "avg_jct_s") -> float:
    """How many times smaller a mean figure is than the first policy's, over the seeds that both ran; NaN if it is 0 or
    unknown.
    """
    both = on_same_seeds(first, other)
    if both is None:
        return math.nan
    ours = both[1].mean(key)
    return both[0].mean(key) / ours if ours > 0 else math.nan


def fastest_policy(rows: Sequence[PolicyRuns]) -> PolicyRuns:
    """The policy of least average JCT, each held against the first over the seeds that both ran; ties: the first one."""

    def relative_jct(row: PolicyRuns) -> float:
        both = on_same_seeds(rows[0], row)
        if both is None:
            return math.inf
        base_s, mean_s = (one.mean("avg_jct_s") for one in both)
        if not math.isfinite(mean_s):
            return math.inf
        return mean_s / base_s if base_s > 0 else mean_s

    return min(rows, key=relative_jct)


def group_runs_by_policy(runs: Sequence[SimulatedRun]) -> list[PolicyRuns]:
    """Runs by policy, in the order of each one's first appearance."""
    names = dict.fromkeys(run.policy for run in runs)
    return [PolicyRuns(name, tuple(run for run in runs if run.policy == name)) for name in names]

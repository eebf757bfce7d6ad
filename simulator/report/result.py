"""Outcomes reduced to what tables and pictures show: small enough to travel between processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.outcome import Outcome
from slurm_soda.simulator.report.curves import Distribution, Use, distribution
from slurm_soda.simulator.report.lanes import Lanes
from slurm_soda.simulator.report.shared import gpu_use
from slurm_soda.simulator.report.shared_lanes import chart
from slurm_soda.simulator.report.site import SiteCurves, site_curves
from slurm_soda.simulator.report.summary import Summary, jct_s, queue_s, summarise


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's run of one workload."""

    policy: str
    seed: int | None
    """Of the generated workload; None for a trace."""
    summary: Summary
    jct_s: FloatColumn
    """NaN for jobs that never ended."""
    queue_s: FloatColumn
    gpus: Use
    lanes: Lanes | None
    """None for a run too large to read as a chart."""
    site: SiteCurves | None = None
    """None where nodes had no part in speed."""


def reduce(outcome: Outcome, policy: str, seed: int | None = None, *, charts: bool = True) -> Run:
    """What reports need of an outcome, under the policy's name as the user typed it."""
    waits_s = queue_s(outcome)
    return Run(
        policy=policy,
        seed=seed,
        summary=summarise(outcome),
        jct_s=jct_s(outcome),
        queue_s=waits_s,
        gpus=gpu_use(outcome),
        lanes=chart(outcome) if charts else None,
        site=site_curves(outcome, waits_s),
    )


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """One policy over all seeds, at least one."""

    policy: str
    runs: tuple[Run, ...]

    def values(self, key: str) -> list[float]:
        """A figure of :class:`~slurm_soda.simulator.report.summary.Summary`, one a seed."""
        return [float(getattr(run.summary, key)) for run in self.runs]

    def mean(self, key: str) -> float:
        """Mean over the seeds."""
        return math.fsum(self.values(key)) / len(self.runs)

    def spread(self, key: str) -> float:
        """Sample standard deviation over the seeds; 0 for one seed."""
        values = self.values(key)
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    @property
    def jct(self) -> Distribution:
        """JCTs of the jobs of all seeds."""
        return distribution(np.concatenate([run.jct_s for run in self.runs]))

    @property
    def queue(self) -> Distribution:
        """Waits of the jobs of all seeds."""
        return distribution(np.concatenate([run.queue_s for run in self.runs]))


def times_better(first: PolicyRuns, other: PolicyRuns, key: str = "avg_jct_s") -> float:
    """How many times smaller a mean figure is than the first policy's; NaN if it is 0 or unknown."""
    ours = other.mean(key)
    return first.mean(key) / ours if ours > 0 else math.nan


def by_policy(runs: Sequence[Run]) -> list[PolicyRuns]:
    """Runs by policy, in the order of each one's first appearance."""
    names = dict.fromkeys(run.policy for run in runs)
    return [PolicyRuns(name, tuple(run for run in runs if run.policy == name)) for name in names]

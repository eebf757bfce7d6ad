"""Each policy of a comparison against stock Slurm on the same jobs: ratios with intervals, and who pays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn
from slurm_soda.simulator.report.paired_statistics import (
    AVG_JCT,
    AVG_SLOWDOWN,
    P99_WAIT,
    WORST_USER,
    Ratio,
    compare_runs,
    most_hurt_user,
)
from slurm_soda.simulator.report.run_results import PolicyRuns, SimulatedRun

STOCK = "multifactor"
"""Slurm as sites have it: multifactor priorities with backfill."""
_SHOWN = (
    (AVG_JCT, "average JCT"),
    (P99_WAIT, "p99 wait"),
    (AVG_SLOWDOWN, "JCT / run time"),
    (WORST_USER, "worst user"),
)


@dataclass(frozen=True, slots=True)
class AgainstStock:
    """One policy over stock Slurm, geometric means over the seeds that both ran."""

    policy: str
    ratios: Mapping[str, Ratio]
    """By :data:`.paired_statistics.FIGURES`."""
    most_hurt_user: float
    """The largest ratio of one user's mean JCT to the same user's under stock Slurm, of users with ten jobs and more; NaN:
    there is none."""

    def document(self) -> dict[str, Any]:
        """As plain data."""
        hurt = self.most_hurt_user if math.isfinite(self.most_hurt_user) else None
        return {**{key: ratio.document() for key, ratio in self.ratios.items()}, "most_hurt_user": hurt}


@dataclass(frozen=True, slots=True)
class _EndedJobs:
    """The jobs that ended under both policies, as columns."""

    jct_s: FloatColumn
    wait_s: FloatColumn
    user: IntColumn
    slowdown: FloatColumn | None

    @classmethod
    def of(cls, run: SimulatedRun, rows: BoolColumn) -> _EndedJobs:
        return cls(run.jct_s[rows], run.queue_s[rows], run.user[rows] + 1, run.slowdown[rows])


def compare_with_stock(row: PolicyRuns, stock: PolicyRuns) -> AgainstStock | None:
    """``None`` where no seed has jobs that ended under both."""
    base = {_key(run): run for run in stock.runs}
    ours, theirs = dict[int, _EndedJobs](), dict[int, _EndedJobs]()
    for run in row.runs:
        other = base.get(_key(run))
        if other is None:
            continue
        rows = np.isfinite(run.jct_s) & np.isfinite(other.jct_s)
        if rows.any():
            ours[_key(run)], theirs[_key(run)] = _EndedJobs.of(run, rows), _EndedJobs.of(other, rows)
    if not ours:
        return None
    return AgainstStock(row.policy, compare_runs(ours, theirs), most_hurt_user(ours, theirs))


def _key(run: SimulatedRun) -> int:
    return -1 if run.seed is None else run.seed


def make_stock_table(found: Sequence[AgainstStock]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells, as text: ratios below 1 are better than stock Slurm."""
    shown = [(key, title) for key, title in _SHOWN if any(key in one.ratios for one in found)]
    cells = [
        [one.policy, *(_ratio_text(one.ratios[key]) for key, _ in shown), f"{one.most_hurt_user:.2f}"] for one in found
    ]
    if not any(math.isfinite(one.most_hurt_user) for one in found):
        return ["policy", *(title for _, title in shown)], [line[:-1] for line in cells]
    return ["policy", *(title for _, title in shown), "most hurt user"], cells


def _ratio_text(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"

"""Who gets worse: jobs and groups of jobs whose completion takes longer than under another policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.workload import Workload

WORSE_RATIO = 1.1
"""A job gets worse if it takes more than so many times as long."""
_SIZES = ((0, 0, "no GPU"), (1, 1, "1 GPU"), (2, 4, "2 to 4 GPUs"), (5, 8, "5 to 8 GPUs"), (9, 2**40, "over 8 GPUs"))
_LENGTHS_S = (10.0, 60.0, 600.0, 3600.0, 36_000.0, 4 * 86_400.0)


@dataclass(frozen=True, slots=True)
class ComparedJobs:
    """Jobs that have something in common."""

    kind: str
    """``user``, ``size`` or ``length``."""
    name: str
    jobs: int
    before_s: float
    """Mean JCT under the policy that stands for the present."""
    after_s: float
    worse: int
    """How many of its jobs get worse."""

    @property
    def change_ratio(self) -> float:
        """Change of the mean JCT; negative: better."""
        return self.after_s / self.before_s - 1.0 if self.before_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class WorseOffJobs:
    """All jobs, and groups of them."""

    everybody: ComparedJobs
    worse_extra_s: float
    """How much longer the jobs that get worse take on average; 0 if there are none."""
    groups: tuple[ComparedJobs, ...]
    """By user, size and length, each kind in a fixed order; users by the change of their mean, worst first."""


def compare_jobs(workload: Workload, before_s: FloatColumn, after_s: FloatColumn) -> WorseOffJobs:
    """Compare two columns of JCTs; jobs that ended under both count."""
    ended = np.isfinite(before_s) & np.isfinite(after_s)
    worse = ended & (after_s > WORSE_RATIO * before_s)

    def group(kind: str, name: str, member: NDArray[np.bool_]) -> ComparedJobs | None:
        rows = member & ended
        count = int(rows.sum())
        if not count:
            return None
        means = float(before_s[rows].mean()), float(after_s[rows].mean())
        return ComparedJobs(kind, name, count, *means, int((worse & rows).sum()))

    everybody = group("all", "all jobs", ended) or ComparedJobs("all", "all jobs", 0, 0.0, 0.0, 0)
    users = [group("user", name, workload.user == code) for code, name in enumerate(workload.users)]
    found = [
        *sorted((g for g in users if g is not None), key=lambda g: (-g.change_ratio, g.name)),
        *(group("size", name, _between(workload.gpus, low, high)) for low, high, name in _SIZES),
        *(group("length", name, member) for name, member in _lengths(workload.run_s)),
    ]
    extra_s = float((after_s - before_s)[worse].mean()) if worse.any() else 0.0
    return WorseOffJobs(everybody, extra_s, tuple(g for g in found if g is not None))


def _between(values: NDArray[np.int64], low: int, high: int) -> BoolColumn:
    return (values >= low) & (values <= high)


def _lengths(run_s: FloatColumn) -> list[tuple[str, BoolColumn]]:
    edges: Sequence[float] = (0.0, *_LENGTHS_S, float("inf"))
    named = []
    for low, high in pairwise(edges):
        name = (
            f"runs up to {span_text(high)}"
            if low == 0
            else f"runs over {span_text(low)}"
            if high == float("inf")
            else f"runs {span_text(low)} to {span_text(high)}"
        )
        named.append((name, (run_s > low) & (run_s <= high)))
    return named

"""What was measured on nodes: who had how many cores, and how busy GPUs were, from when to when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn


@dataclass(frozen=True, slots=True)
class UsageIntervals:
    """Parts of runs during which nothing changed, in the order of their ends. Columns of equal length."""

    job: IntColumn
    """Row of the workload."""
    start_s: FloatColumn
    end_s: FloatColumn
    gpus: IntColumn
    cpus: IntColumn
    """Cores that the job held, over all nodes."""
    busy_ratio: FloatColumn
    """GPU utilisation; 0 while the job does not run yet (its start takes time), NaN where nobody knows."""


@dataclass(frozen=True, slots=True)
class NodeMeasurements:
    """What agents saw and did during one run; columns of jobs are in the workload's row order."""

    stretches: UsageIntervals
    cpus: IntColumn
    """Cores over all nodes that a job had last; -1: it never ran."""
    steps: IntColumn
    """Steps of the job's last search; -1: none ended."""
    trains: BoolColumn
    """Jobs that train; the others have no GPU, or serve inference."""


class NodeUsageRecorder:
    """Collects stretches."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, float, float, int, int, float]] = []

    def add(self, job: int, start_s: float, end_s: float, held: tuple[int, int], busy_ratio: float) -> None:
        """A job held so many GPUs and cores; nothing is noted of no time."""
        if end_s > start_s:
            self._rows.append((job, start_s, end_s, *held, busy_ratio))

    def stretches(self) -> UsageIntervals:
        """Everything so far, as columns."""
        job, start_s, end_s, gpus, cpus, busy = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        return UsageIntervals(
            job=np.array(job, dtype=np.int64),
            start_s=np.array(start_s, dtype=np.float64),
            end_s=np.array(end_s, dtype=np.float64),
            gpus=np.array(gpus, dtype=np.int64),
            cpus=np.array(cpus, dtype=np.int64),
            busy_ratio=np.array(busy, dtype=np.float64),
        )

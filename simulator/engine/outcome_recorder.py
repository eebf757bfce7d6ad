"""What happened to jobs, written down while the clock runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.outcome import AllocationSegments, SimulationOutcome
from slurm_soda.simulator.workload import Workload


class OutcomeRecorder:
    """When jobs ended, what happened to them on the way, and their stretches of time on resources as they end.

    Attributes:
        end_s: of each job; NaN for one that has not ended.
        preemptions: of each job.
        failures: runs of each job that ended because a node failed.
        decisions: how often the policy was asked.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.end_s = [math.nan] * len(workload)
        self.preemptions = [0] * len(workload)
        self.failures = [0] * len(workload)
        self.decisions = 0
        self._rows: list[tuple[int, float, float, int, int]] = []
        self._counts: list[int] = [0]
        self._nodes: list[int] = []
        self._node_gpus: list[int] = []

    def add_segment(
        self, job: int, start_s: float, end_s: float, size: tuple[int, int], pieces: tuple[NodeAllocation, ...]
    ) -> None:
        """A job held ``size`` (GPUs, CPUs) from ``start_s`` until ``end_s``."""
        self._rows.append((job, start_s, end_s, *size))
        for piece in pieces:
            self._nodes.append(piece.node)
            self._node_gpus.append(piece.gpus)
        self._counts.append(len(self._nodes))

    def outcome(
        self, policy: str, cluster: SimulatedCluster, first_start_s: Sequence[float], cpu_s: float
    ) -> SimulationOutcome:
        """Everything so far; jobs that never started have an infinite ``first_start_s``."""
        starts_s, segments = np.array(first_start_s, dtype=np.float64), self._segments()
        held_s = np.bincount(segments.job, weights=segments.end_s - segments.start_s, minlength=len(self._workload))
        return SimulationOutcome(
            policy=policy,
            workload=self._workload,
            cluster=cluster,
            first_start_s=np.where(np.isinf(starts_s), np.nan, starts_s),
            end_s=np.array(self.end_s, dtype=np.float64),
            held_s=held_s.astype(np.float64),
            preemptions=np.array(self.preemptions, dtype=np.int64),
            failures=np.array(self.failures, dtype=np.int64),
            segments=segments,
            decisions=self.decisions,
            cpu_s=cpu_s,
        )

    def _segments(self) -> AllocationSegments:
        job, start_s, end_s, gpus, cpus = zip(*self._rows, strict=True) if self._rows else ((),) * 5
        return AllocationSegments(
            job=np.array(job, dtype=np.int64),
            start_s=np.array(start_s, dtype=np.float64),
            end_s=np.array(end_s, dtype=np.float64),
            gpus=np.array(gpus, dtype=np.int64),
            cpus=np.array(cpus, dtype=np.int64),
            node_start=np.array(self._counts, dtype=np.int64),
            node=np.array(self._nodes, dtype=np.int64),
            node_gpus=np.array(self._node_gpus, dtype=np.int64),
        )

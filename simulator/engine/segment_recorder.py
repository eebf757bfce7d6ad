"""What happened to jobs, written down while the clock runs."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.outcome import AllocationSegments


class SegmentRecorder:
    """Stretches of time on resources, in the order in which they end."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, float, float, int, int]] = []
        self._counts: list[int] = [0]
        self._nodes: list[int] = []
        self._node_gpus: list[int] = []

    def add(
        self, job: int, start_s: float, end_s: float, size: tuple[int, int], pieces: tuple[NodeAllocation, ...]
    ) -> None:
        """A job held ``size`` (GPUs, CPUs) from ``start_s`` until ``end_s``."""
        self._rows.append((job, start_s, end_s, *size))
        for piece in pieces:
            self._nodes.append(piece.node)
            self._node_gpus.append(piece.gpus)
        self._counts.append(len(self._nodes))

    def segments(self) -> AllocationSegments:
        """Everything so far, as columns."""
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

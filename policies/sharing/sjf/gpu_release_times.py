"""When GPUs get free, if nobody joins anybody: what a job would wait for that does not share."""

from __future__ import annotations

import math

import numpy as np

from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn


class GpuReleaseTimes:
    """The ends of running jobs, GPU by GPU, at the pace that they have now; others that wait are not counted.

    Complexity: O(GPUs log GPUs) for each set of nodes asked for, O(nodes) for each question.
    """

    def __init__(self, gpu_occupancy: GpuOccupancy, interference_view: InterferenceView) -> None:
        """``tenancy``: as it is before anybody gets a place in this decision."""
        held = [(device, rows) for device, rows in enumerate(gpu_occupancy.jobs_on) if rows]
        self._node = gpu_occupancy.node[[device for device, _ in held]]
        self._free_s = np.array([max(map(interference_view.left_s, rows)) for _, rows in held], dtype=np.float64)
        self._sorted: dict[bytes, FloatColumn] = {}

    def wait_s(self, nodes: BoolColumn, gpus: int) -> float:
        """Until so many more GPUs of these nodes are free; infinite if there are not so many."""
        if gpus <= 0:
            return 0.0
        key = nodes.tobytes()
        if key not in self._sorted:
            self._sorted[key] = np.sort(self._free_s[nodes[self._node]])
        free_s = self._sorted[key]
        return float(free_s[gpus - 1]) if gpus <= len(free_s) else math.inf

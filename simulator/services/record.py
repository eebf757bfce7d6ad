"""What a run found of its services."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurm_soda.policies.services.service import Device
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.node.node_measurements import UsageIntervals

HOURS = 24
LATENCY_STEP_MS, LATENCY_BINS = 2.0, 500
"""Latencies are counted in bins of this width; the last one has all longer ones."""


@dataclass(frozen=True, slots=True)
class ServicesRecord:
    """Columns by service."""

    name: str
    mode: str
    """How they were served: one of :data:`.service_set.SERVING_MODES`."""
    services: tuple[str, ...]
    target_ms: FloatColumn
    queries: FloatColumn
    """Queries that came."""
    over: FloatColumn
    """Queries that were answered later than the target: of times at which the load was above what was ready, all."""
    lost: FloatColumn
    """Queries that came while no instance was ready."""
    latency: FloatColumn
    """Queries by service, hour of day and bin of latency; empty bins where services shared GPUs."""
    instances: FloatColumn
    """Mean number of instances, by service and device."""
    device_changes: int
    """Times that a service came to another device."""
    gave_way: int
    """Jobs that were requeued for services."""
    usage: UsageIntervals
    """GPUs and cores that all of them held together; ``busy_ratio`` is of these GPUs, and no row is a job's."""
    origin_s: float
    """Unix time of second 0."""

    def p99_ms(self) -> FloatColumn:
        """99th percentile of each service's latencies by hour of day; NaN where nothing was answered."""
        upto = np.cumsum(self.latency, axis=2)
        whole = upto[:, :, -1]
        first = (upto >= 0.99 * whole[:, :, None]).argmax(axis=2)
        found: FloatColumn = np.where(whole > 0, (first + 1) * LATENCY_STEP_MS, math.nan)
        return found

    def document(self) -> dict[str, Any]:
        """As plain data."""
        p99_ms = self.p99_ms()
        rows = [
            {
                "name": name,
                "target_ms": float(self.target_ms[at]),
                "queries": float(self.queries[at]),
                "over_target": float(self.over[at]),
                "lost": float(self.lost[at]),
                "p99_ms": _largest(p99_ms[at]),
                "cpu_instances": float(self.instances[at, Device.CPU]),
                "gpu_instances": float(self.instances[at, Device.GPU]),
            }
            for at, name in enumerate(self.services)
        ]
        return {
            "name": self.name,
            "serve": self.mode,
            "queries": float(self.queries.sum()),
            "over_target": float(self.over.sum()),
            "lost": float(self.lost.sum()),
            "gpus_held": float(self.instances[:, Device.GPU].sum()),
            "gpus_held_most": int(self.usage.gpus.max(initial=0)),
            "cpu_instances": float(self.instances[:, Device.CPU].sum()),
            "device_changes": self.device_changes,
            "gave_way": self.gave_way,
            "services": rows,
        }


def _largest(values: FloatColumn) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None

"""Memory bandwidth that nodes have left, as their agents report it; in memory, since every report says it anew."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.policies.services.service import FloatColumn
from slurm_soda.wire.records import NodeReport

HOLDS_S = 90.0
"""So long a report holds; an agent sends one every half a minute at least (``heartbeat_s``)."""


@dataclass(slots=True)
class NodeBandwidths:
    """The newest word of each node; for threads."""

    _free: dict[str, tuple[float, float]] = field(default_factory=dict)
    """GB/s by node, and when it was said, by the steady clock."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, report: NodeReport, steady_s: float) -> None:
        """Take in a report; one without a measurement ends the word of the one before."""
        with self._lock:
            self._free.pop(report.node, None)
            for one in report.bandwidth:
                self._free[report.node] = one.free_gb_s, steady_s

    def free_gb_s(self, nodes: Sequence[str], steady_s: float) -> FloatColumn:
        """Of these nodes, NaN where nothing is known; empty where that is so of all."""
        with self._lock:
            self._free = {node: told for node, told in self._free.items() if steady_s - told[1] <= HOLDS_S}
            found = [self._free[node][0] if node in self._free else float("nan") for node in nodes]
        return np.array(found) if not np.isnan(found).all() else np.zeros(0)

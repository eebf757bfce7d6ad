"""How fast a job runs where it was placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slurm_soda.policies.engine.placement import NodeAllocation


class SpeedModel(Protocol):
    """Speed of jobs by placement."""

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """Speed of the workload's job ``row`` on these places, relative to the one its ``run_s`` was told for; above 0."""
        ...

"""How fast a job runs where it was placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_soda.policies.engine.placement import NodeAllocation


class SpeedModel(Protocol):
    """Speed of jobs by placement."""

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """Speed of the workload's job ``row`` on these places, relative to the one its ``run_s`` was told for; above 0."""
        ...


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Every job runs as its trace says, wherever it is."""

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """Always 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Product:
    """Several influences at once, each independent of the others: their ratios multiply; 1 without any."""

    models: tuple[SpeedModel, ...]

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """The product over :attr:`models`."""
        return math.prod(model.ratio(row, pieces) for model in self.models)

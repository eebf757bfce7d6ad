"""What a snapshot knows of how much slower jobs run on more nodes than they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

EXTRA_NODES = 3
"""Of so many nodes more than needed and of still more the same is known."""


@dataclass(frozen=True, slots=True)
class SpreadSlowdowns:
    """Slowdowns by kind of job and by nodes beyond the fewest that would do; empty where nothing was measured.

    Attributes:
        expected: time of an iteration on 1, 2, ... :data:`EXTRA_NODES` nodes more than needed, over that on the fewest; 1 or
            more, and the closer to 1 the less sure it is; shape (kinds, :data:`EXTRA_NODES`).
        at_most: as it was measured, with the expected error on top; of the same shape.
        kind: by row of the job table, a row of these; -1 for a job of whose kind nothing was measured; empty: of all jobs.
        binding: jobs run on the nodes that a plan names, and wait where a plan lets them wait. Slurm does neither.
    """

    expected: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, EXTRA_NODES)))
    at_most: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, EXTRA_NODES)))
    kind: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    binding: bool = False

    @property
    def decides(self) -> bool:
        """Whether a policy can go by it: something is known, and plans say where jobs run."""
        return self.binding and bool((self.kind >= 0).any())

    def expect(self, row: int, extra_nodes: int) -> float:
        """The expected slowdown of a job, by its row, on so many nodes more than needed; 1 where nothing was measured."""
        kind = int(self.kind[row]) if len(self.kind) else -1
        if kind < 0 or extra_nodes <= 0:
            return 1.0
        return float(self.expected[kind, min(extra_nodes, EXTRA_NODES) - 1])

    def only(self, rows: NDArray[np.int64]) -> SpreadSlowdowns:
        """Of some rows of the job table."""
        if not len(self.kind):
            return self
        return SpreadSlowdowns(self.expected, self.at_most, self.kind[rows], self.binding)


@runtime_checkable
class PlacesBySpreadPolicy(Protocol):
    """A policy that goes by these slowdowns."""

    @property
    def goes_by_spread(self) -> Literal[True]:
        """Says so."""
        ...

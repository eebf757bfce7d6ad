"""What can be known about a kind of job, and which values are allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MAX_MIB = 2.0**30
"""No GPU has a pebibyte: such a value is in another unit."""


@dataclass(frozen=True, slots=True)
class ProfileQuantity:
    """One thing that is known."""

    name: str
    unit: str
    doc: str
    low: float = 0.0
    high: float = math.inf
    pair: bool = False
    """Of a job with another one on its GPU."""
    of_gpu: bool = False
    """Of a type of GPU, whatever runs on it."""
    yes_or_no: bool = False
    """1 or 0."""

    def allows(self, value: float) -> bool:
        """Whether it may have this value."""
        return value in (0.0, 1.0) if self.yes_or_no else self.low <= value <= self.high and math.isfinite(value)

    @property
    def allowed(self) -> str:
        """For error messages."""
        if self.yes_or_no:
            return "1 or 0"
        return f"a number from {self.low:g}" + (f" to {self.high:g}" if math.isfinite(self.high) else "")


QUANTITIES: Mapping[str, ProfileQuantity] = MappingProxyType({
    quantity.name: quantity
    for quantity in (
        ProfileQuantity("iteration_s", "s", "time of an iteration alone", low=1e-9),
        ProfileQuantity("utilisation_ratio", "", "share of time in which a GPU computes, alone", high=1.0),
        ProfileQuantity("memory_mib", "MiB", "most memory of one GPU", high=MAX_MIB),
        ProfileQuantity("occupancy_s", "s", "C, occupancy times kernel time of an iteration (co-location, Equation 4.3)"),
        ProfileQuantity("bandwidth_s", "s", "M, share of memory bandwidth times kernel time of an iteration (Equation 4.2)"),
        ProfileQuantity("restart_s", "s", "time without progress when a job starts again"),
        ProfileQuantity("migration_s", "s", "time without progress when a job moves to another GPU"),
        ProfileQuantity("spread_1", "", "iteration time on a node more than needed over that on the fewest", low=1e-3),
        ProfileQuantity("spread_2", "", "the same on two nodes more than needed", low=1e-3),
        ProfileQuantity("spread_3", "", "the same on three nodes more than needed, or still more", low=1e-3),
        ProfileQuantity("xi", "", "iteration time beside another job over that alone", low=1.0, pair=True),
        ProfileQuantity("xi_time_slicing", "", "the same where they take turns on the GPU, without MPS", low=1.0, pair=True),
        ProfileQuantity("fits", "", "whether both fit into the memory of one GPU: 1 or 0", pair=True, yes_or_no=True),
        ProfileQuantity("device_mib", "MiB", "memory of a GPU of this type", low=1.0, high=MAX_MIB, of_gpu=True),
    )
})  # fmt: skip

"""Paired differences: what a part costs, told apart from what the machine does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Block = Callable[[bool], Sequence[float]]
"""Measures one block of equal length with (True) or without (False) the part; seconds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a part costs each time, in milliseconds; the bounds hold the median with 95 % confidence (bootstrap)."""

    name: str
    target_ms: float
    median_ms: float
    low_ms: float
    high_ms: float
    without_ms: float
    """Median without the part."""
    pairs: int

    @property
    def met(self) -> bool:
        """The median is within the target."""
        return self.median_ms <= self.target_ms

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "met": self.met}


def measure(name: str, target_ms: float, block: Block, rounds: int) -> Cost:
    """Blocks in the order without, with, with, without, …: a drift that is even over two blocks cancels.

    The i-th value of a block is paired with the i-th one of its neighbour.
    """
    without: list[float] = []
    with_it: list[float] = []
    for number in range(rounds):
        for part in (False, True) if number % 2 == 0 else (True, False):
            (with_it if part else without).extend(block(part))
    return cost(name, target_ms, without, with_it)


def cost(name: str, target_ms: float, without: Sequence[float], with_it: Sequence[float]) -> Cost:
    """Median of the paired differences."""
    differences = 1000 * (np.array(with_it) - np.array(without))
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(differences, (2000, len(differences))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5]).tolist()
    return Cost(
        name, target_ms, float(np.median(differences)), low, high, 1000 * float(np.median(without)), len(differences)
    )

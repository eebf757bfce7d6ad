"""The largest batch that meets a target, and the fewest cores that reach it, in few tries (paper 004, Section V-D)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

FIRST_STEP = 8
"""Batch that is measured after that of one query."""
CLOSE_ENOUGH_RATIO = 0.05
"""The search ends when the largest batch is known to this part of itself, or exactly where that is less than one query."""


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """How long one batch takes."""

    batch: int
    cores: int
    batch_ms: float
    """The median of several."""
    error_ratio: float
    """By what part of the median the slowest of twenty is longer."""
    failed: str = ""
    """Why there is no time (:attr:`batch_ms` is infinite): queries were not answered, such as for lack of memory."""
    bandwidth_gb_s: float | None = None
    """Memory bandwidth meanwhile; None where it cannot be read."""

    def slowest_ms(self, window_ms: float) -> float:
        """How long a query of a steady load takes at most: its window, the batch before it, and its own."""
        return window_ms + 2.0 * self.batch_ms * (1.0 + self.error_ratio)


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """What a batch has to meet."""

    target_ms: float
    window_ms: float

    def is_met(self, measured: MeasuredBatch) -> bool:
        """Whether the slowest query is within the target, with the measured error."""
        return measured.slowest_ms(self.window_ms) <= self.target_ms

    @property
    def longest_batch_ms(self) -> float:
        """What a batch may take if all take the same."""
        return (self.target_ms - self.window_ms) / 2.0


def largest_batch(
    measure: Callable[[int], MeasuredBatch],
    target: LatencyTarget,
    most: int,
    is_over: Callable[[], bool] = lambda: False,
) -> MeasuredBatch:
    """The largest batch up to ``most`` that meets the target, or that of one query if not even that does.

    Times grow about linearly with the batch (paper 004, Fig. 9), so every second guess is on the line through the two
    measurements around; the others halve what is open, so that the search is short whatever the times are.

    Args:
        measure: measures a batch of a size.
        target: what is to be met.
        most: largest batch that is tried; at least 1.
        is_over: whether time is up: then the largest that was found so far is the answer.
    """
    best = measure(1)
    if not target.is_met(best):
        return best
    other: MeasuredBatch | None = None
    too_large, by_line = most + 1, False
    while too_large - best.batch > max(1.0, CLOSE_ENOUGH_RATIO * best.batch) and not is_over():
        measured = measure(_next(best, other, too_large, target, by_line=by_line))
        by_line = not by_line
        if target.is_met(measured):
            best, other = measured, best if too_large > most else other
        else:
            too_large, other = measured.batch, measured
    return best


def _next(
    best: MeasuredBatch, other: MeasuredBatch | None, too_large: int, target: LatencyTarget, *, by_line: bool
) -> int:
    lowest, highest = best.batch + 1, too_large - 1
    guess = math.sqrt(best.batch * highest) if other is not None else FIRST_STEP
    if by_line and other is not None and math.isfinite(other.batch_ms) and other.batch != best.batch:
        each_ms = (other.batch_ms - best.batch_ms) / (other.batch - best.batch)
        if each_ms > 0.0:
            may_ms = target.longest_batch_ms / (1.0 + best.error_ratio)
            guess = best.batch + (may_ms - best.batch_ms) / each_ms
    return int(min(max(guess, lowest), highest))


def fewest_cores(
    measure: Callable[[int], MeasuredBatch],
    reached: MeasuredBatch,
    target: LatencyTarget,
    is_over: Callable[[], bool] = lambda: False,
) -> MeasuredBatch:
    """The same batch on the fewest cores with which it meets the target still.

    Args:
        measure: measures that batch on a number of cores.
        reached: the batch on the most cores.
        target: what is to be met.
        is_over: whether time is up: then the fewest that were found so far are the answer.
    """
    best, too_few = reached, 0
    while best.cores - too_few > 1 and not is_over():
        measured = measure((best.cores + too_few) // 2)
        if target.is_met(measured):
            best = measured
        else:
            too_few = measured.cores
    return best

"""What controllers have to report to sodad beyond usage, until sodad has it, and what sodad ordered last."""

from __future__ import annotations

from collections import deque

from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement, CoreOrder

MAX_MESSAGES_KEPT = 1024
"""Of each kind; while the controller is away the oldest go first."""


class CoreMessages:
    """News of one agent; a report that fails takes nothing out."""

    def __init__(self) -> None:
        self.measurements: deque[CoreMeasurement] = deque(maxlen=MAX_MESSAGES_KEPT)
        self.fits: deque[CoreFit] = deque(maxlen=MAX_MESSAGES_KEPT)
        self.orders: dict[tuple[int, int], CoreOrder] = {}
        """The latest order for a run, by job and restart."""

    def __bool__(self) -> bool:
        return bool(self.measurements or self.fits)

    def mark_sent(self, measurements: tuple[CoreMeasurement, ...], fits: tuple[CoreFit, ...]) -> None:
        """The controller has these; by value, as more may have come meanwhile."""
        for one in measurements:
            if one in self.measurements:
                self.measurements.remove(one)
        for fit in fits:
            if fit in self.fits:
                self.fits.remove(fit)

    def take(self, orders: tuple[CoreOrder, ...]) -> None:
        """Every answer holds all orders that count."""
        self.orders = {(order.job_id, order.restart): order for order in orders}

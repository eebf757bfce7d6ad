"""Slowdowns of the workers of each job, which must not differ by more than a bound (Equation 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple


class SlowdownBalance:
    """How much each worker of each job is slowed, for the one question that a device asks: how much the others are."""

    def __init__(self) -> None:
        self._values: dict[int, dict[int, float]] = {}
        self._least: dict[int, _Least] = {}

    def set_slowdowns(self, job: int, values: Mapping[int, float]) -> None:
        """All workers of a job at once, by device."""
        self._values[job] = dict(values)
        self._least[job] = _Least.of(self._values[job])

    def least_elsewhere(self, job: int, device: int) -> float:
        """Slowdown of the least slowed worker of a job that is not on this device; infinite if there is none."""
        return self._least[job].apart_from(device)

    def update_device(self, device: int, values: Mapping[int, float], left: int | None) -> set[int]:
        """Devices on which a worker may now be slowed more, or less, since one of its job on ``device`` is.

        ``values``: slowdowns there by job; ``left``: a job of which a worker went away.
        """
        for job, value in values.items():
            self._values.setdefault(job, {})[device] = value
        changed = list(values)
        if left is not None and left not in values:
            del self._values[left][device]
            changed.append(left)
        found: set[int] = set()
        for job in changed:
            before, now = self._least.get(job, _NOBODY), _Least.of(self._values[job])
            if now != before:
                self._least[job] = now
                found.update(place for place in self._values[job] if before.apart_from(place) != now.apart_from(place))
        return found


class _Least(NamedTuple):
    """The least slowdown among the devices of a job, where that is, and the least elsewhere."""

    value: float
    device: int
    elsewhere: float

    @classmethod
    def of(cls, values: Mapping[int, float]) -> _Least:
        if not values:
            return _NOBODY
        device = min(values, key=values.__getitem__)
        return cls(
            values[device], device, min((other for place, other in values.items() if place != device), default=math.inf)
        )

    def apart_from(self, device: int) -> float:
        """Of the workers that are not on this device."""
        return self.elsewhere if device == self.device else self.value


_NOBODY = _Least(math.inf, -1, math.inf)

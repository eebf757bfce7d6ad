"""Speeds measured elsewhere, alone and in pairs: tables in the format of Gavel's simulator, and what they tell.

``{gpu: {"('MODEL (batch size B)', scale)": {"null": alone, "('OTHER', scale)": [mine, the other's]}}}``, all in steps per
second over all the job's GPUs; 0 where it does not fit in memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source

ALONE = "null"
SLOWEST, FASTEST = 1e-9, 1e9
"""Steps per second that can be: a step of thirty years, a billion a second. Ratios of such speeds are sound numbers."""
_KEY = re.compile(r"\('(?P<model>[^']+?)( \(batch size (?P<batch>[0-9]{1,9})\))?', (?P<scale>[1-9][0-9]{0,5})\)")


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """Steps per second by workload; a batch of 0 is a model's only one.

    Attributes:
        alone: alone on the GPU; 0 where it does not fit on that type of GPU.
        shared: of both, on the same GPUs; zeros where they do not fit together. A pair may be in it in either order, or
            both; if so, they fit in both orders or in none.
        error_ratio: how far off a ratio of its speeds may be, relative to it.
    """

    alone: Mapping[JobKind, float]
    shared: Mapping[tuple[JobKind, JobKind], tuple[float, float]]
    error_ratio: float = 0.05

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """In the table's order."""
        return tuple(dict.fromkeys(kind.gpu_type for kind in self.alone))

    def kinds(self, gpu_type: str, gpus: int = 1) -> tuple[JobKind, ...]:
        """Workloads that run on so many GPUs of a type, in the table's order."""
        return tuple(kind for kind in self.alone if kind.gpu_type == gpu_type and kind.gpus == gpus)

    def speeds(self, one: JobKind, other: JobKind) -> tuple[float, float] | None:
        """Steps per second of both together; None if nobody measured that."""
        if (one, other) in self.shared:
            return self.shared[one, other]
        back = self.shared.get((other, one))
        return None if back is None else (back[1], back[0])

    def slowdown(self, slowed: JobKind, other: JobKind) -> float | None:
        """Slowdown of one beside one other, as measured (noise may be below 1); None if unknown or if they do not fit."""
        both, alone = self.speeds(slowed, other), self.alone.get(slowed)
        return alone / both[0] if both and alone and all(both) else None

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """As :meth:`.InterferenceEstimator.xi`, at least 1; only pairs were measured, so None beside several."""
        if not others:
            return Estimate(1.0, 0.0, Source.IMPORTED)
        found = self.slowdown(slowed, others[0]) if len(others) == 1 else None
        return None if found is None else Estimate(max(found, 1.0), self.error_ratio * found, Source.IMPORTED)

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """Whether these fit into the memory of one GPU; of three or more it knows only that none of two excludes that."""
        if any(self.alone.get(kind) == 0.0 for kind in together):
            return False
        pairs = [self.speeds(one, other) for row, one in enumerate(together) for other in together[row + 1 :]]
        if any(pair is not None and not all(pair) for pair in pairs):
            return False
        return True if len(together) < 3 and all(pairs) and all(kind in self.alone for kind in together) else None


def parse_speed_table(document: object) -> SpeedTable:
    """A table from its decoded JSON.

    Raises:
        PolicyError: it has another form; the error names the place by its keys.
    """
    if not isinstance(document, dict) or not document:
        raise PolicyError("it must be an object of GPUs, such as {'v100': ...}")
    alone: dict[JobKind, float] = {}
    shared: dict[tuple[JobKind, JobKind], tuple[float, float]] = {}
    for gpu, jobs in document.items():
        place = _Place(f"GPU {gpu!r}")
        if not isinstance(jobs, dict) or not jobs:
            raise place.fault("an object of jobs", jobs)
        for key, speeds in jobs.items():
            job, here = _kind(place, gpu, key), place.inside(key)
            if not isinstance(speeds, dict) or ALONE not in speeds:
                raise here.fault(f"an object with {ALONE!r}, the speed alone", speeds)
            alone[job] = _speed(here.inside(ALONE), speeds[ALONE])
            for other, both in speeds.items():
                if other != ALONE:
                    shared[job, _kind(here, gpu, other)] = _two_speeds(here.inside(other), both)
    for one, other in [pair for pair, both in shared.items() if not all(both) and pair[::-1] in shared]:
        shared[other, one] = (0.0, 0.0)  # memory knows no order: what does not fit as measured one way does not fit
    return SpeedTable(MappingProxyType(alone), MappingProxyType(shared))


class _Place(NamedTuple):
    """Where in the document something is: JSON keeps no lines, so it is said by names."""

    name: str

    def inside(self, name: str) -> _Place:
        return _Place(f"{self.name}, {name}")

    def fault(self, allowed: str, value: Any) -> PolicyError:
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
        return PolicyError(f"{self.name}: must be {allowed}, not {shown}")


def _kind(place: _Place, gpu: str, key: str) -> JobKind:
    match = _KEY.fullmatch(key)
    if match is None:
        raise place.fault("jobs such as \"('ResNet-18 (batch size 128)', 1)\"", key)
    return JobKind(match["model"], int(match["batch"] or 0), gpu, int(match["scale"]))


def _two_speeds(place: _Place, both: Any) -> tuple[float, float]:
    if not isinstance(both, list) or len(both) != 2:
        raise place.fault("two speeds, the job's and the other's", both)
    return _speed(place, both[0]), _speed(place, both[1])


def _speed(place: _Place, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Comparisons, since a whole number of hundreds of digits is sound JSON and no float.
    if not number or not 0 <= value < math.inf:
        raise place.fault("steps per second, a number from 0", value)
    if value and not SLOWEST <= value <= FASTEST:
        raise place.fault(f"steps per second, 0 or a number from {SLOWEST:g} to {FASTEST:g}", value)
    return float(value)

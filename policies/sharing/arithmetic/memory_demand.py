"""GPU memory that comes and goes: the opportunistic memory model of OJPP (Section 3.2)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot import FloatColumn

FULL_DEVICE = 1.0 + 1e-9
"""A device, with room for rounding."""


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What a worker needs of a device's memory, as shares of it: ``base`` always, ``extra`` more at times.

    Attributes:
        base: gamma.
        extra: delta.
        probability: p, the share of time with ``base + extra``.

    Raises:
        PolicyError: a share is not from 0 to 1, or the worker does not fit a device of its own.
    """

    base: float
    extra: float = 0.0
    probability: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.base, self.extra, self.probability):
            if not 0.0 <= value <= 1.0:
                raise PolicyError(f"memory demands are shares and probabilities from 0 to 1, not {value!r}")
        if self.base + self.extra > FULL_DEVICE:
            raise PolicyError(f"a worker must fit one device, not need {self.base + self.extra:.3f} of it")

    @property
    def mean(self) -> float:
        """Memory needed on average."""
        return self.base + self.probability * self.extra


@dataclass(frozen=True, slots=True)
class MemoryDemandFit:
    """A demand fitted to samples.

    Attributes:
        probability_error: standard error of the probability, if samples were independent; those of one cyclic job are
            better than that where they cover whole iterations, worse where they do not.
        slack: memory that the demand holds on average beyond what was used, as a share of the device.
    """

    demand: MemoryDemand
    samples: int
    probability_error: float
    slack: float


def fit_demand(used_mib: Sequence[float], device_mib: float) -> MemoryDemandFit:
    """The two levels that cover all samples with the least memory on average.

    The higher level is the most ever used; the lower one is the most used outside peaks, so that the demand never
    understates a sample (the paper calls gamma an average, but its example, <0.3, 0.62, 0.2>, is a lower level).
    Levels less than 1 % of the device apart are one.

    Complexity: O(n log n).

    Raises:
        PolicyError: no sample, a device without memory, or a sample that is negative, not a number or exceeds it.
    """
    if not device_mib > 0 or not math.isfinite(device_mib):
        raise PolicyError(f"a device must have memory, not {device_mib!r} MiB")
    for used in used_mib:
        if not 0 <= used <= device_mib * FULL_DEVICE:
            raise PolicyError(f"a sample must be from 0 to {device_mib:g} MiB (the device), not {used!r}")
    if not len(used_mib):
        raise PolicyError("a demand needs at least one sample of the memory used")
    levels = np.minimum(np.sort(np.asarray(used_mib, dtype=np.float64)) / device_mib, 1.0)
    count, top = len(levels), float(levels[-1])
    # Taking the first k samples as base holds levels[k - 1] in k of n samples, and the top in the others.
    below = np.arange(1, count + 1)
    held = (levels * below + top * (count - below)) / count
    split = int(np.argmin(held))
    base = float(levels[split])
    if top - base < 0.01:
        demand = MemoryDemand(top)
    else:
        demand = MemoryDemand(base, top - base, float(np.count_nonzero(levels > base)) / count)
    p = demand.probability
    return MemoryDemandFit(demand, count, math.sqrt(p * (1 - p) / count), demand.mean - float(levels.mean()))


def fit_together(demands: Iterable[MemoryDemand]) -> bool:
    """Sum of the bases and the largest extra are at most the device (Equation 3): one peak at a time has room."""
    listed = list(demands)
    return math.fsum(one.base for one in listed) + max((one.extra for one in listed), default=0.0) <= FULL_DEVICE


def collision_probability(probabilities: Iterable[float]) -> float:
    """The tau of Equation 4: probability that two or more workers are at their peak at once, if independent.

    Kept as the probabilities of no and of exactly one peak, so that it is O(n) and never below 0.
    """
    none, one = 1.0, 0.0
    for p in probabilities:
        if not 0.0 <= p <= 1.0:
            raise PolicyError(f"a probability must be from 0 to 1, not {p!r}")
        none, one = none * (1 - p), one * (1 - p) + none * p
    return max(1.0 - none - one, 0.0)


def gregariousness(probabilities: FloatColumn) -> FloatColumn:
    """The highest collision probability of each job with any other of the queue (Equation 20), O(n).

    For two jobs tau is the product of their p, so the partner that counts is the one with the highest p.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if len(p) < 2:
        return np.zeros(len(p))
    top = int(np.argmax(p))
    others = np.full(len(p), p[top])
    others[top] = float(np.max(np.delete(p, top)))
    worst: FloatColumn = p * others
    return worst


class MemoryDemandKey(NamedTuple):
    """A :class:`MemoryDemand` as a plain key: gamma, delta, p."""

    base: float
    extra: float
    probability: float


@lru_cache(maxsize=100_000)
def expected_stall_ratios(demands: tuple[MemoryDemandKey, ...]) -> tuple[float, ...]:
    """Expected part of its time that each worker on a device waits for memory.

    Peaks come independently, as in Equation 4. While those that peak do not fit together, they take turns, each with an
    equal part of the time; the others go on. Exact, over all 2^k states of k workers.
    """
    base = math.fsum(one.base for one in demands)
    lost = [0.0] * len(demands)
    if base + math.fsum(one.extra for one in demands) <= FULL_DEVICE:
        return tuple(lost)
    for peaks in itertools.product((False, True), repeat=len(demands)):
        peaking = [at for at, peak in enumerate(peaks) if peak]
        if len(peaking) < 2 or base + math.fsum(demands[at].extra for at in peaking) <= FULL_DEVICE:
            continue
        chance = math.prod(
            one.probability if peak else 1 - one.probability for peak, one in zip(peaks, demands, strict=True)
        )
        for at in peaking:
            lost[at] += chance * (1 - 1 / len(peaking))
    return tuple(lost)

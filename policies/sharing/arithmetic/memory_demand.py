"""GPU memory that comes and goes: the opportunistic memory model of OJPP (Section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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

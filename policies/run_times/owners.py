"""What several owners' jobs show of one thing, joined so that each owner counts once: a lie may only harm the liar.

Every owner has one value, the median of his own jobs, however many he runs. What others may rely on is the median of these
values, and there is none before :data:`MIN_OWNERS` owners have one.

**What one liar can do.** Let the honest owners' values be ``h1 <= ... <= hm``, and let a liar, whatever he claims in however
many jobs, add any value ``x``.

- ``m`` even: the honest median is halfway between ``a = h(m/2)`` and ``b = h(m/2 + 1)``; with ``x`` it is the middle one of
  ``a``, ``x`` and ``b``. It moves by at most half of ``b - a``.
- ``m`` odd: the honest median is one value ``c``; with ``x`` it is the mean of ``c`` and the nearest value on the side of
  ``x``, which is ``x`` itself or an honest neighbour of ``c``. It moves by at most half of the way from ``c`` to that
  neighbour.

So **the median moves by at most half the distance between two honest owners' neighbouring values in the middle**, and, as
``m >= 2`` whenever there is a median at all, it never leaves the range of the honest owners' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

MIN_OWNERS = 3
"""The fewest owners of whom one may lie while the median is still between two honest ones' values."""


def median_over_owners(values: Sequence[float]) -> float | None:
    """The median of owners' values, one value an owner; ``None`` with fewer than :data:`MIN_OWNERS` owners."""
    return median(values) if len(values) >= MIN_OWNERS else None


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The least of the values up to which half of the weight lies.

    An owner's own value is weighted by run time, so that short jobs which are run only to change it change little.

    Args:
        values: at least one.
        weights: as many, 0 or more.
    """
    half, past = sum(weights) / 2, 0.0
    ordered = sorted(zip(values, weights, strict=True))
    for value, weight in ordered:
        past += weight
        if past >= half:
            return value
    return ordered[-1][0]

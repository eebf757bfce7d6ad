"""The percentile by which latencies are told: of the router's queries and of the load generator's alike."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest of ``values`` that at least ``part`` of them do not exceed (nearest rank); 0 without values."""
    if not values:
        return 0.0
    return float(sorted(values)[max(0, math.ceil(part * len(values) - 1e-9) - 1)])

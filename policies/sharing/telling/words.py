"""Words and plain data that all that is told of sharing has in common."""

from __future__ import annotations

import math
from typing import Any

from slurm_soda.policies.sharing.arithmetic.pairs import Schedule
from slurm_soda.policies.sharing.arithmetic.subbatch import Xi
from slurm_soda.policies.sharing.knowledge import Estimate


def estimate_words(xi: Estimate) -> str:
    """A slowdown, its error where it has one, and where it came from."""
    error = f" ± {xi.error:.2g}" if math.isfinite(xi.error) and xi.error else ""
    return f"{xi.value:.2f}{error} ({xi.source.name.lower()})"


def xi_words(xi: Xi) -> str:
    """What two jobs do to each other."""
    return f"it takes {estimate_words(xi.new)} times as long, the other one {estimate_words(xi.partner)} times"


def after_words(after: Schedule) -> str:
    """One after the other."""
    return f"One after the other: it ends after {after.new_end_s:,.0f} s{mean_words(after)}."


def mean_words(schedule: Schedule) -> str:
    """The mean of all ends."""
    return f", all of them after {schedule.mean_s:,.0f} s on average"


def schedule_numbers(schedule: Schedule) -> dict[str, Any]:
    """As plain data."""
    return {
        "start_s": schedule.start_s, "new_end_s": schedule.new_end_s, "ends_s": list(schedule.ends_s),
        "mean_s": schedule.mean_s,
    }  # fmt: skip


def xi_numbers(xi: Xi) -> dict[str, Any]:
    """As plain data, of both sides."""
    return {"new": _numbers(xi.new), "partner": _numbers(xi.partner)}


def _numbers(xi: Estimate) -> dict[str, Any]:
    return {"value": xi.value, "error": xi.error, "source": xi.source.name.lower()}

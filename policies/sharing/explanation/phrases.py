"""Words and plain data that all that is told of sharing has in common."""

from __future__ import annotations

import math
from typing import Any

from slurm_soda.policies.sharing.arithmetic.completion_times import CompletionSchedule
from slurm_soda.policies.sharing.arithmetic.sharing_decision import PairSlowdown
from slurm_soda.policies.sharing.job_kinds import Estimate


def format_estimate(xi: Estimate) -> str:
    """A slowdown, its error where it has one, and where it came from."""
    error = f" ± {xi.error:.2g}" if math.isfinite(xi.error) and xi.error else ""
    return f"{xi.value:.2f}{error} ({xi.source.name.lower()})"


def format_slowdowns(xi: PairSlowdown) -> str:
    """What two jobs do to each other."""
    return f"it takes {format_estimate(xi.new)} times as long, the other one {format_estimate(xi.partner)} times"


def format_sequential(after: CompletionSchedule) -> str:
    """One after the other."""
    return f"One after the other: it ends after {after.new_end_s:,.0f} s{format_mean(after)}."


def format_mean(schedule: CompletionSchedule) -> str:
    """The mean of all ends."""
    return f", all of them after {schedule.mean_s:,.0f} s on average"


def schedule_as_dict(schedule: CompletionSchedule) -> dict[str, Any]:
    """As plain data."""
    return {
        "start_s": schedule.start_s,
        "new_end_s": schedule.new_end_s,
        "ends_s": list(schedule.ends_s),
        "mean_s": schedule.mean_s,
    }


def slowdowns_as_dict(xi: PairSlowdown) -> dict[str, Any]:
    """As plain data, of both sides."""
    return {"new": _numbers(xi.new), "partner": _numbers(xi.partner)}


def _numbers(xi: Estimate) -> dict[str, Any]:
    return {"value": xi.value, "error": xi.error, "source": xi.source.name.lower()}

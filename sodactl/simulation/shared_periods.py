"""With whom a simulated job shared its GPUs, when, and what that did to it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.sharing.sharing_record import SharingRecord
from slurm_soda.sodactl import output


class SharedPeriod(NamedTuple):
    """Time beside one other job."""

    row: int
    """Of the other one."""
    start_s: float
    end_s: float


def find_shared_periods(outcome: SimulationOutcome, row: int) -> list[SharedPeriod]:
    """When others were on GPUs of a job, by time; empty where nobody shared. O(its runs x all runs)."""
    record, segments = outcome.sharing, outcome.segments
    if record is None:
        return []
    found: list[SharedPeriod] = []
    for mine in np.flatnonzero(segments.job == row).tolist():
        start_s, end_s, held = segments.start_s[mine], segments.end_s[mine], _devices(record, mine)
        overlap = (segments.start_s < end_s) & (segments.end_s > start_s) & (segments.job != row)
        for other in np.flatnonzero(overlap).tolist():
            if held & _devices(record, other):
                span = max(start_s, segments.start_s[other]), min(end_s, segments.end_s[other])
                found.append(SharedPeriod(int(segments.job[other]), *map(float, span)))
    return _join_periods(sorted(found))


def _devices(record: SharingRecord, segment: int) -> set[int]:
    return set(record.device[record.segment_start[segment] : record.segment_start[segment + 1]].tolist())


def _join_periods(found: list[SharedPeriod]) -> list[SharedPeriod]:
    """Runs of one job beside another that only moved in between, as one; by time."""
    joined: list[SharedPeriod] = []
    for one in found:
        if joined and joined[-1].row == one.row and one.start_s <= joined[-1].end_s:
            joined[-1] = joined[-1]._replace(end_s=max(joined[-1].end_s, one.end_s))
        else:
            joined.append(one)
    return sorted(joined, key=lambda one: (one.start_s, one.row))


def sharing_document(outcome: SimulationOutcome, row: int) -> dict[str, Any] | None:
    """As plain data; None where jobs do not share."""
    record = outcome.sharing
    if record is None:
        return None
    xi, worst = float(record.xi[row]), float(record.worst_xi[row])
    return {
        "shared_s": float(record.shared_s[row]),
        "xi": None if math.isnan(xi) else xi,
        "worst_xi": None if math.isnan(worst) else worst,
        "with": [
            {"job": outcome.workload.label[one.row], "start_s": one.start_s, "end_s": one.end_s}
            for one in find_shared_periods(outcome, row)
        ],
    }


def print_sharing(outcome: SimulationOutcome, row: int) -> None:
    """The same for people; nothing where it met nobody."""
    found = sharing_document(outcome, row)
    if not found or not found["with"]:
        return
    xi, worst = found["xi"], found["worst_xi"]
    said = "" if xi is None else f"; meanwhile it took {xi:.2f} times as long as alone (at worst {worst:.2f})"
    output.print_line(f"It shared GPUs for {found['shared_s']:,.0f} s{said}:")
    for one in found["with"]:
        output.print_line(f"  from {one['start_s']:,.0f} s to {one['end_s']:,.0f} s with job {one['job']}")

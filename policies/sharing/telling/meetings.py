"""A meeting in words and numbers that a person can check: whom a job meets, each bound, and what a move costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slurm_soda.policies.sharing.arithmetic.pairs import Schedule
from slurm_soda.policies.sharing.telling.meeting import Mate, Measure, Meeting, Shift
from slurm_soda.policies.sharing.telling.words import after_words, mean_words, schedule_numbers, xi_numbers, xi_words

Names = Callable[[int], str]
"""What people call a job, by its id."""


def sentences(meeting: Meeting, name: Names = str) -> tuple[str, ...]:
    """What is known of the pairs and the bounds, and what came of it. Times in seconds from the decision."""
    said = [] if meeting.shift is None else _shift(meeting.shift, name)
    said.append(_alone(meeting))
    if meeting.mates:
        if meeting.sequential is not None:
            said.append(after_words(meeting.sequential))
        if meeting.together is not None:
            said.append(_together(meeting.together, allowed=meeting.share))
    said += [_slowdown(mate, name) for mate in meeting.mates]
    if meeting.measures:
        where = ", ".join(map(str, meeting.devices if meeting.shift is None else (meeting.shift.target,)))
        said.append(f"On GPU {where}, with it: " + "; ".join(_measure(one, name) for one in meeting.measures) + ".")
    said.append(f"So: {meeting.reason}.")
    return tuple(said)


def _alone(meeting: Meeting) -> str:
    own, *others = map(_seconds, meeting.alone_s)
    needs = "needs" if len(others) == 1 else "need"
    return f"Alone it takes {own}" + (f"; whom it meets still {needs} {', '.join(others)}." if others else ".")


def _seconds(time_s: float) -> str:
    return f"{time_s:,.0f} s" if math.isfinite(time_s) else "an unknown time"


def _together(schedule: Schedule, *, allowed: bool) -> str:
    ends = ", ".join(f"{end_s:,.0f} s" for end_s in schedule.ends_s)
    now = "Together now: it ends" if allowed else "Together, were it allowed: it would end"
    return f"{now} after {schedule.new_end_s:,.0f} s, the others after {ends}{mean_words(schedule)}."


def _slowdown(mate: Mate, name: Names, where: str = "") -> str:
    known = "nobody knows" if mate.xi is None else xi_words(mate.xi)
    return f"Slowdown {where}beside job {name(mate.job_id)}: {known}."


def _measure(measure: Measure, name: Names) -> str:
    whose = "" if measure.job_id is None else f" of job {name(measure.job_id)}"
    value = f"{measure.name}{whose} {_number(measure.value)}"
    if measure.bound is None:
        return value
    allowed = f"{'at least' if measure.least else 'at most'} {_number(measure.bound)}"
    return f"{value}, {allowed}" if measure.holds else f"{value}, but {allowed} is allowed"


def _number(value: float) -> str:
    return "unknown" if not math.isfinite(value) else f"{value:.0f}" if isinstance(value, int) else f"{value:.3f}"


def _shift(shift: Shift, name: Names) -> list[str]:
    return [
        f"GPU {shift.source}, which it leaves: interference (theta) {_number(shift.interference)}, "
        f"{_number(shift.average)} smoothed over time, at most {shift.bound:.3f}.",
        *(_slowdown(mate, name, "there ") for mate in shift.left),
        f"To move to GPU {shift.target} costs {shift.cost_gpu_s:,.0f} GPU s, of {shift.budget_gpu_s:,.0f} for all moves "
        "of one decision.",
    ]


def numbers(meeting: Meeting) -> dict[str, Any]:
    """The same as plain data; numbers that JSON lacks may be among them."""
    shift = meeting.shift
    return {
        "share": meeting.share,
        "gpus": list(meeting.devices),
        "alone_s": list(meeting.alone_s),
        "sequential": _schedule(meeting.sequential),
        "together": _schedule(meeting.together),
        "mates": [_mate(mate) for mate in meeting.mates],
        "measures": [
            {"name": one.name, "job_id": one.job_id, "value": one.value, "bound": one.bound, "least": one.least,
             "holds": one.holds}
            for one in meeting.measures
        ],
        "move": None if shift is None else {
            "from_gpu": shift.source, "to_gpu": shift.target, "left": [_mate(mate) for mate in shift.left],
            "interference": shift.interference, "average": shift.average, "bound": shift.bound,
            "cost_gpu_s": shift.cost_gpu_s, "budget_gpu_s": shift.budget_gpu_s,
        },
        "reason": meeting.reason,
    }  # fmt: skip


def _mate(mate: Mate) -> dict[str, Any]:
    return {"job_id": mate.job_id, "xi": None if mate.xi is None else xi_numbers(mate.xi)}


def _schedule(schedule: Schedule | None) -> dict[str, Any] | None:
    return None if schedule is None else schedule_numbers(schedule)

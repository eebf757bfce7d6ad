"""A meeting in words and numbers that a person can check: whom a job meets, each bound, and what a move costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slurm_soda.policies.sharing.arithmetic.completion_times import CompletionSchedule
from slurm_soda.policies.sharing.explanation.co_runners import BoundCheck, CoRunner, CoRunnersReport, WorkerMoveReport
from slurm_soda.policies.sharing.explanation.phrases import (
    format_mean,
    format_sequential,
    format_slowdowns,
    schedule_as_dict,
    slowdowns_as_dict,
)

JobNames = Callable[[int], str]
"""What people call a job, by its id."""


def format_report(meeting: CoRunnersReport, name: JobNames = str) -> tuple[str, ...]:
    """What is known of the pairs and the bounds, and what came of it. Times in seconds from the decision."""
    said = [] if meeting.shift is None else _move(meeting.shift, name)
    said.append(_alone(meeting))
    if meeting.co_runners:
        if meeting.sequential is not None:
            said.append(format_sequential(meeting.sequential))
        if meeting.together is not None:
            said.append(_together(meeting.together, allowed=meeting.share))
    said += [_slowdown(co_runner, name) for co_runner in meeting.co_runners]
    if meeting.bound_checks:
        where = ", ".join(map(str, meeting.devices if meeting.shift is None else (meeting.shift.target,)))
        said.append(f"On GPU {where}, with it: " + "; ".join(_measure(one, name) for one in meeting.bound_checks) + ".")
    said.append(f"So: {meeting.reason}.")
    return tuple(said)


def _alone(meeting: CoRunnersReport) -> str:
    own, *others = map(_seconds, meeting.alone_s)
    needs = "needs" if len(others) == 1 else "need"
    return f"Alone it takes {own}" + (f"; whom it meets still {needs} {', '.join(others)}." if others else ".")


def _seconds(time_s: float) -> str:
    return f"{time_s:,.0f} s" if math.isfinite(time_s) else "an unknown time"


def _together(schedule: CompletionSchedule, *, allowed: bool) -> str:
    ends = ", ".join(f"{end_s:,.0f} s" for end_s in schedule.ends_s)
    now = "Together now: it ends" if allowed else "Together, were it allowed: it would end"
    return f"{now} after {schedule.new_end_s:,.0f} s, the others after {ends}{format_mean(schedule)}."


def _slowdown(co_runner: CoRunner, name: JobNames, where: str = "") -> str:
    known = "nobody knows" if co_runner.xi is None else format_slowdowns(co_runner.xi)
    return f"Slowdown {where}beside job {name(co_runner.job_id)}: {known}."


def _measure(measure: BoundCheck, name: JobNames) -> str:
    whose = "" if measure.job_id is None else f" of job {name(measure.job_id)}"
    value = f"{measure.name}{whose} {_number(measure.value)}"
    if measure.bound is None:
        return value
    allowed = f"{'at least' if measure.least else 'at most'} {_number(measure.bound)}"
    return f"{value}, {allowed}" if measure.holds else f"{value}, but {allowed} is allowed"


def _number(value: float) -> str:
    return "unknown" if not math.isfinite(value) else f"{value:.0f}" if isinstance(value, int) else f"{value:.3f}"


def _move(shift: WorkerMoveReport, name: JobNames) -> list[str]:
    return [
        f"GPU {shift.source}, which it leaves: interference (theta) {_number(shift.interference)}, "
        f"{_number(shift.average)} smoothed over time, at most {shift.bound:.3f}.",
        *(_slowdown(co_runner, name, "there ") for co_runner in shift.left),
        f"To move to GPU {shift.target} costs {shift.cost_gpu_s:,.0f} GPU s, of {shift.budget_gpu_s:,.0f} for all moves "
        "of one decision.",
    ]


def report_as_dict(meeting: CoRunnersReport) -> dict[str, Any]:
    """The same as plain data; numbers that JSON lacks may be among them."""
    shift = meeting.shift
    return {
        "share": meeting.share,
        "gpus": list(meeting.devices),
        "alone_s": list(meeting.alone_s),
        "sequential": _schedule(meeting.sequential),
        "together": _schedule(meeting.together),
        "mates": [_co_runner(co_runner) for co_runner in meeting.co_runners],
        "measures": [
            {
                "name": one.name,
                "job_id": one.job_id,
                "value": one.value,
                "bound": one.bound,
                "least": one.least,
                "holds": one.holds,
            }
            for one in meeting.bound_checks
        ],
        "move": None
        if shift is None
        else {
            "from_gpu": shift.source,
            "to_gpu": shift.target,
            "left": [_co_runner(co_runner) for co_runner in shift.left],
            "interference": shift.interference,
            "average": shift.average,
            "bound": shift.bound,
            "cost_gpu_s": shift.cost_gpu_s,
            "budget_gpu_s": shift.budget_gpu_s,
        },
        "reason": meeting.reason,
    }


def _co_runner(co_runner: CoRunner) -> dict[str, Any]:
    return {"job_id": co_runner.job_id, "xi": None if co_runner.xi is None else slowdowns_as_dict(co_runner.xi)}


def _schedule(schedule: CompletionSchedule | None) -> dict[str, Any] | None:
    return None if schedule is None else schedule_as_dict(schedule)

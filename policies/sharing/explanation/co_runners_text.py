"""A report in words and numbers that a person can check: whom a job meets, each bound, and what a move costs."""

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


def format_report(report: CoRunnersReport, name: JobNames = str) -> tuple[str, ...]:
    """What is known of the pairs and the bounds, and what came of it. Times in seconds from the decision."""
    said = [] if report.shift is None else _move(report.shift, name)
    said.append(_alone(report))
    if report.co_runners:
        if report.sequential is not None:
            said.append(format_sequential(report.sequential))
        if report.together is not None:
            said.append(_together(report.together, allowed=report.share))
    said += [_slowdown(co_runner, name) for co_runner in report.co_runners]
    if report.bound_checks:
        where = ", ".join(map(str, report.devices if report.shift is None else (report.shift.target,)))
        said.append(f"On GPU {where}, with it: " + "; ".join(_measure(one, name) for one in report.bound_checks) + ".")
    said.append(f"So: {report.reason}.")
    return tuple(said)


def _alone(report: CoRunnersReport) -> str:
    own, *others = map(_seconds, report.alone_s)
    return f"Alone it takes {own}" + (f"; its co-runners still need {', '.join(others)}." if others else ".")


def _seconds(time_s: float) -> str:
    return f"{time_s:,.0f} s" if math.isfinite(time_s) else "an unknown time"


def _together(schedule: CompletionSchedule, *, allowed: bool) -> str:
    ends = ", ".join(f"{end_s:,.0f} s" for end_s in schedule.ends_s)
    now = "Together now: it ends" if allowed else "Together, if it were allowed: it would end"
    return f"{now} after {schedule.new_end_s:,.0f} s, the others after {ends}{format_mean(schedule)}."


def _slowdown(co_runner: CoRunner, name: JobNames, where: str = "") -> str:
    known = "not known" if co_runner.xi is None else format_slowdowns(co_runner.xi)
    return f"Slowdown {where}with job {name(co_runner.job_id)}: {known}."


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


def report_as_dict(report: CoRunnersReport) -> dict[str, Any]:
    """The same as plain data; numbers that JSON lacks may be among them."""
    shift = report.shift
    return {
        "share": report.share,
        "gpus": list(report.devices),
        "alone_s": list(report.alone_s),
        "sequential": _schedule(report.sequential),
        "together": _schedule(report.together),
        "co_runners": [_co_runner(co_runner) for co_runner in report.co_runners],
        "bound_checks": [
            {
                "name": one.name,
                "job_id": one.job_id,
                "value": one.value,
                "bound": one.bound,
                "least": one.least,
                "holds": one.holds,
            }
            for one in report.bound_checks
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
        "reason": report.reason,
    }


def _co_runner(co_runner: CoRunner) -> dict[str, Any]:
    return {"job_id": co_runner.job_id, "xi": None if co_runner.xi is None else slowdowns_as_dict(co_runner.xi)}


def _schedule(schedule: CompletionSchedule | None) -> dict[str, Any] | None:
    return None if schedule is None else schedule_as_dict(schedule)

"""A decision to share or to wait, in words and numbers that a person can check. Times in seconds from the decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slurm_soda.policies.explanation.explanation import Explanation
from slurm_soda.policies.explanation.job_position import VERDICTS
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.arithmetic.completion_times import CompletionSchedule
from slurm_soda.policies.sharing.arithmetic.sharing_decision import PairSlowdown, SharingDecision, SubBatchTrial
from slurm_soda.policies.sharing.co_runners.report import BoundCheck, CoRunner, CoRunnersReport, WorkerMoveReport
from slurm_soda.policies.sharing.job_kinds import Estimate

JobNames = Callable[[int], str]
"""What people call a job, by its id."""


def explain_sharing(decision: SharingDecision | CoRunnersReport | None, name: JobNames = str) -> Explanation:
    """What was compared, the result, and what is known of the slowdowns; empty without a decision.

    Numbers that JSON lacks (NaN, infinity) may be among the numbers.
    """
    if decision is None:
        return Explanation()
    if isinstance(decision, CoRunnersReport):
        return Explanation(tuple(_report_sentences(decision, name)), _report_numbers(decision))
    return Explanation(tuple(_decision_sentences(decision)), _decision_numbers(decision))


def describe_verdict(verdict: JobVerdict, decision: SharingDecision | CoRunnersReport | None) -> str:
    """The verdict in words that agree with the sharing decision.

    A job that leaves GPUs to others may well fit; one that is preempted and gets others only moves.
    """
    if isinstance(decision, SharingDecision) and not decision.share and len(decision.alone_s) == 1:
        return "It waits."
    if verdict == JobVerdict.PREEMPT and decision is not None and decision.share:
        return "It stops, to start again on other GPUs."
    return VERDICTS[verdict]


def select_trial(decision: SharingDecision) -> SubBatchTrial | None:
    """The trial to show: the chosen one; else one that was allowed and ended later, or else the first refused one."""
    if decision.chosen is not None:
        return decision.chosen
    allowed = [trial for trial in decision.trials if trial.together is not None]
    if allowed:
        return min(allowed, key=lambda trial: trial.together.mean_s if trial.together else math.inf)
    return decision.trials[0] if decision.trials else None


def _decision_sentences(decision: SharingDecision) -> list[str]:
    own, *others = decision.alone_s
    partners = ", ".join(f"{left_s:,.0f} s" for left_s in others)
    sentences = [f"Alone it takes {own:,.0f} s" + (f"; its co-runners would still need {partners}." if others else ".")]
    if others:
        sentences.append(_sequential(decision.sequential))
    trial = select_trial(decision)
    if trial is not None:
        sentences += _trial(trial)
        if trial.together is not None and others:
            sentences += _who_ends_first(trial.together, decision.sequential)
    return [*sentences, f"So: {decision.reason}."]


def _who_ends_first(together: CompletionSchedule, sequential: CompletionSchedule) -> list[str]:
    """Also what is gained, and what a guest does twice."""
    first_s, gained_s = min(together.ends_s), sequential.mean_s - together.mean_s
    if together.new_end_s <= first_s:
        first = f"It is expected to end first, {first_s - together.new_end_s:,.0f} s before the other one."
    elif together.lost_s > 0:
        first = (
            f"The other one is expected to end first, after {first_s:,.0f} s. Then it loses its place, is requeued, and "
            f"does {together.lost_s:,.0f} s of its work again."
        )
    else:
        first = f"The other one is expected to end first, after {first_s:,.0f} s."
    word = "earlier" if gained_s >= 0 else "later"
    return [first, f"On average they end {abs(gained_s):,.0f} s {word} than one after the other."]


def _trial(trial: SubBatchTrial) -> list[str]:
    with_ = _sub_batch(trial)
    sentences = []
    if trial.together is not None:
        ends = ", ".join(f"{end_s:,.0f} s" for end_s in trial.together.ends_s)
        partners = f", the others after {ends}" if ends else ""
        sentences.append(
            f"Together now, {with_}: it ends after {trial.together.new_end_s:,.0f} s{partners}{_mean(trial.together)}."
        )
    elif trial.refused:
        sentences.append(f"Together is not allowed {with_}: {trial.refused}.")
    return [*sentences, *(f"Slowdown: {_slowdowns(xi)}." for xi in trial.xi)]


def _sub_batch(trial: SubBatchTrial) -> str:
    """Its sub-batch and memory. A batch of one may be an unknown batch, and no memory is unknown memory."""
    if trial.steps > 1:
        batch = f"a sub-batch of {trial.sub_batch}, {trial.steps} passes an iteration"
    else:
        batch = f"its whole batch of {trial.sub_batch}" if trial.sub_batch > 1 else "its whole batch"
    return f"with {batch}" + (f", {trial.memory_mib:,.0f} MiB" if trial.memory_mib else "")


def _report_sentences(report: CoRunnersReport, name: JobNames) -> list[str]:
    move = report.move
    sentences = [] if move is None else _move(move, name)
    own, *others = map(_seconds, report.alone_s)
    sentences.append(f"Alone it takes {own}" + (f"; its co-runners still need {', '.join(others)}." if others else "."))
    if report.co_runners:
        if report.sequential is not None:
            sentences.append(_sequential(report.sequential))
        if report.together is not None:
            sentences.append(_together(report.together, allowed=report.share))
    sentences += [_co_runner(co_runner, name) for co_runner in report.co_runners]
    if report.bound_checks:
        where = ", ".join(map(str, report.devices if move is None else (move.target,)))
        sentences.append(
            f"On GPU {where}, with it: " + "; ".join(_bound(one, name) for one in report.bound_checks) + "."
        )
    return [*sentences, f"So: {report.reason}."]


def _seconds(time_s: float) -> str:
    return f"{time_s:,.0f} s" if math.isfinite(time_s) else "an unknown time"


def _sequential(after: CompletionSchedule) -> str:
    return f"One after the other: it ends after {after.new_end_s:,.0f} s{_mean(after)}."


def _together(schedule: CompletionSchedule, *, allowed: bool) -> str:
    ends = ", ".join(f"{end_s:,.0f} s" for end_s in schedule.ends_s)
    now = "Together now: it ends" if allowed else "Together, if it were allowed: it would end"
    return f"{now} after {schedule.new_end_s:,.0f} s, the others after {ends}{_mean(schedule)}."


def _mean(schedule: CompletionSchedule) -> str:
    return f", all of them after {schedule.mean_s:,.0f} s on average"


def _co_runner(co_runner: CoRunner, name: JobNames, where: str = "") -> str:
    known = "not known" if co_runner.xi is None else _slowdowns(co_runner.xi)
    return f"Slowdown {where}with job {name(co_runner.job_id)}: {known}."


def _slowdowns(xi: PairSlowdown) -> str:
    return f"it takes {_estimate(xi.new)} times as long, the other one {_estimate(xi.partner)} times"


def _estimate(xi: Estimate) -> str:
    """With its error where it has one, and its source."""
    error = f" ± {xi.error:.2g}" if math.isfinite(xi.error) and xi.error else ""
    return f"{xi.value:.2f}{error} ({xi.source.name.lower()})"


def _bound(check: BoundCheck, name: JobNames) -> str:
    whose = "" if check.job_id is None else f" of job {name(check.job_id)}"
    value = f"{check.name}{whose} {_number(check.value)}"
    if check.bound is None:
        return value
    allowed = f"{'at least' if check.least else 'at most'} {_number(check.bound)}"
    return f"{value}, {allowed}" if check.holds else f"{value}, but {allowed} is allowed"


def _number(value: float) -> str:
    return "unknown" if not math.isfinite(value) else f"{value:.0f}" if isinstance(value, int) else f"{value:.3f}"


def _move(move: WorkerMoveReport, name: JobNames) -> list[str]:
    return [
        f"GPU {move.source}, which it leaves: interference (theta) {_number(move.interference)}, "
        f"{_number(move.average)} smoothed over time, at most {move.bound:.3f}.",
        *(_co_runner(co_runner, name, "there ") for co_runner in move.left),
        f"To move to GPU {move.target} costs {move.cost_gpu_s:,.0f} GPU s, of {move.budget_gpu_s:,.0f} for all moves "
        "of one decision.",
    ]


def _decision_numbers(decision: SharingDecision) -> dict[str, Any]:
    trial = select_trial(decision)
    shown = None if trial is None else trial.together
    return {
        "share": decision.share,
        "start_s": decision.start_s,
        "alone_s": list(decision.alone_s),
        "sequential": _schedule_numbers(decision.sequential),
        "gained_s": None if shown is None else decision.sequential.mean_s - shown.mean_s,
        "chosen_sub_batch": None if decision.chosen is None else decision.chosen.sub_batch,
        "trials": [
            {
                "sub_batch": trial.sub_batch,
                "steps": trial.steps,
                "memory_mib": trial.memory_mib,
                "alone_s": trial.alone_s,
                "slowdowns": list(trial.slowdowns),
                "refused": trial.refused,
                "together": _schedule_numbers(trial.together),
                "best": _schedule_numbers(trial.best),
                "xi": [_slowdown_numbers(xi) for xi in trial.xi],
            }
            for trial in decision.trials
        ],
        "reason": decision.reason,
    }


def _report_numbers(report: CoRunnersReport) -> dict[str, Any]:
    move = report.move
    return {
        "share": report.share,
        "gpus": list(report.devices),
        "alone_s": list(report.alone_s),
        "sequential": _schedule_numbers(report.sequential),
        "together": _schedule_numbers(report.together),
        "co_runners": [_co_runner_numbers(co_runner) for co_runner in report.co_runners],
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
        if move is None
        else {
            "from_gpu": move.source,
            "to_gpu": move.target,
            "left": [_co_runner_numbers(co_runner) for co_runner in move.left],
            "interference": move.interference,
            "average": move.average,
            "bound": move.bound,
            "cost_gpu_s": move.cost_gpu_s,
            "budget_gpu_s": move.budget_gpu_s,
        },
        "reason": report.reason,
    }


def _schedule_numbers(schedule: CompletionSchedule | None) -> dict[str, Any] | None:
    if schedule is None:
        return None
    return {
        "start_s": schedule.start_s,
        "new_end_s": schedule.new_end_s,
        "ends_s": list(schedule.ends_s),
        "mean_s": schedule.mean_s,
        "lost_s": schedule.lost_s,
    }


def _co_runner_numbers(co_runner: CoRunner) -> dict[str, Any]:
    return {"job_id": co_runner.job_id, "xi": None if co_runner.xi is None else _slowdown_numbers(co_runner.xi)}


def _slowdown_numbers(xi: PairSlowdown) -> dict[str, Any]:
    return {"new": _estimate_numbers(xi.new), "partner": _estimate_numbers(xi.partner)}


def _estimate_numbers(xi: Estimate) -> dict[str, Any]:
    return {"value": xi.value, "error": xi.error, "source": xi.source.name.lower()}

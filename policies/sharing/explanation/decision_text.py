"""A decision to share or to wait, in words and numbers that a person can check: the pair's arithmetic."""

from __future__ import annotations

import math
from typing import Any

from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision, SubBatchTrial
from slurm_soda.policies.sharing.explanation import co_runners_text
from slurm_soda.policies.sharing.explanation.co_runners import CoRunnersReport
from slurm_soda.policies.sharing.explanation.co_runners_text import JobNames
from slurm_soda.policies.sharing.explanation.phrases import (
    format_mean,
    format_sequential,
    format_slowdowns,
    schedule_as_dict,
    slowdowns_as_dict,
)


def format_decision(told: SharingDecision | CoRunnersReport, name: JobNames = str) -> tuple[str, ...]:
    """What was compared, what came of it, and what is known of the slowdowns. Times in seconds from the decision.

    Args:
        name: what people call a job, by its id.
    """
    return co_runners_text.format_report(told, name) if isinstance(told, CoRunnersReport) else _sentences(told)


def _sentences(decision: SharingDecision) -> tuple[str, ...]:
    own, *others = decision.alone_s
    partners = ", ".join(f"{left_s:,.0f} s" for left_s in others)
    said = [f"Alone it takes {own:,.0f} s" + (f"; its co-runners would still need {partners}." if others else ".")]
    if others:
        said.append(format_sequential(decision.sequential))
    told = select_trial(decision)
    if told is not None:
        said += _trial(told)
    said.append(f"So: {decision.reason}.")
    return tuple(said)


def select_trial(decision: SharingDecision) -> SubBatchTrial | None:
    """The trial to tell of: the chosen one; else one that was allowed and ended later, or else the first refused one."""
    if decision.chosen is not None:
        return decision.chosen
    allowed = [trial for trial in decision.trials if trial.together is not None]
    if allowed:
        return min(allowed, key=lambda trial: trial.together.mean_s if trial.together else math.inf)
    return decision.trials[0] if decision.trials else None


def _trial(trial: SubBatchTrial) -> list[str]:
    with_ = _with(trial)
    said = []
    if trial.together is not None:
        ends = ", ".join(f"{end_s:,.0f} s" for end_s in trial.together.ends_s)
        partners = f", the others after {ends}" if ends else ""
        said.append(
            f"Together now, {with_}: it ends after {trial.together.new_end_s:,.0f} s{partners}{format_mean(trial.together)}."
        )
    elif trial.refused:
        said.append(f"Together is not allowed {with_}: {trial.refused}.")
    said += [f"Slowdown: {format_slowdowns(xi)}." for xi in trial.xi]
    return said


def _with(trial: SubBatchTrial) -> str:
    """Its sub-batch and memory. A batch of one may be one that nobody told, and no memory is memory that nobody knows."""
    if trial.steps > 1:
        batch = f"a sub-batch of {trial.sub_batch}, {trial.steps} passes an iteration"
    else:
        batch = f"its whole batch of {trial.sub_batch}" if trial.sub_batch > 1 else "its whole batch"
    return f"with {batch}" + (f", {trial.memory_mib:,.0f} MiB" if trial.memory_mib else "")


def decision_as_dict(told: SharingDecision | CoRunnersReport) -> dict[str, Any]:
    """The same as plain data; numbers that JSON lacks may be among them."""
    return co_runners_text.report_as_dict(told) if isinstance(told, CoRunnersReport) else _numbers(told)


def _numbers(decision: SharingDecision) -> dict[str, Any]:
    return {
        "share": decision.share,
        "start_s": decision.start_s,
        "alone_s": list(decision.alone_s),
        "sequential": schedule_as_dict(decision.sequential),
        "chosen_sub_batch": None if decision.chosen is None else decision.chosen.sub_batch,
        "trials": [
            {
                "sub_batch": trial.sub_batch,
                "steps": trial.steps,
                "memory_mib": trial.memory_mib,
                "alone_s": trial.alone_s,
                "slowdowns": list(trial.slowdowns),
                "refused": trial.refused,
                "together": None if trial.together is None else schedule_as_dict(trial.together),
                "best": None if trial.best is None else schedule_as_dict(trial.best),
                "xi": [slowdowns_as_dict(xi) for xi in trial.xi],
            }
            for trial in decision.trials
        ],
        "reason": decision.reason,
    }

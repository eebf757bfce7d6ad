"""A job's run time left from whoever may know it, the best source first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.run_times.learner import LearnedRunTime
from slurm_soda.policies.sharing.job_kinds import Estimate, Source


class RunTimeSource(StrEnum):
    """How a run time was found, the best first."""

    PROGRESS = "progress"
    """The job says how many iterations are left, and how long they take."""
    ITERATIONS = "iterations"
    """It said how many iterations it takes, and its kind's iteration time is known."""
    HISTORY = "history"
    """Like jobs ended before."""
    LIMIT = "limit"
    """Nobody knows more than its time limit."""


@dataclass(frozen=True, slots=True)
class IterationWork:
    """Work that is counted in iterations.

    Raises:
        PolicyError: a count is negative or not finite, or an iteration takes no time.
    """

    left: float
    each: Estimate
    """Seconds an iteration, alone."""

    def __post_init__(self) -> None:
        if not 0 <= self.left < math.inf:
            raise PolicyError(f"iterations left must be 0 or more and finite, not {self.left!r}")
        if self.each.value <= 0:
            raise PolicyError(f"an iteration must take a positive time, not {self.each.value!r} s")

    def run_s(self) -> Estimate:
        """How long they take."""
        return Estimate(self.left * self.each.value, self.left * self.each.error, self.each.source)


@dataclass(frozen=True, slots=True)
class RunTimeLeft:
    """Run time left, from whom, and by which jobs where it was learned."""

    left: Estimate
    by: RunTimeSource
    jobs: int = 0
    basis: str = ""


def predict_run_time_left(
    attained_s: float,
    limit_s: float,
    *,
    progress: IterationWork | None = None,
    iterations: IterationWork | None = None,
    learnt: LearnedRunTime | None = None,
) -> RunTimeLeft | None:
    """The first source that knows; never more than the time limit leaves. None if nobody knows and there is no limit.

    Args:
        attained_s: what the job has run so far.
        limit_s: its time limit; infinite without one.
        progress: what is left by the job's own word.
        iterations: all of them, by its hints, the time of each from its kind.
        learnt: its like; of no jobs if there were none.
    """
    rest_s = max(limit_s - attained_s, 0.0)
    if progress is not None:
        return cap_by_time_limit(RunTimeLeft(progress.run_s(), RunTimeSource.PROGRESS), rest_s)
    if iterations is not None:
        whole = iterations.run_s()
        left = replace(whole, value=max(whole.value - attained_s, 0.0))
        # One that should have ended long ago tells that its count or its kind's time was wrong: then like jobs know better.
        if attained_s <= whole.value + 2 * whole.error:
            return cap_by_time_limit(RunTimeLeft(left, RunTimeSource.ITERATIONS), rest_s)
    if learnt is not None and learnt.jobs:
        left = learnt.curve.remaining(attained_s)
        return cap_by_time_limit(RunTimeLeft(left, RunTimeSource.HISTORY, learnt.jobs, learnt.group.words()), rest_s)
    return None if math.isinf(rest_s) else RunTimeLeft(Estimate(rest_s, rest_s, Source.PRIOR), RunTimeSource.LIMIT)


def cap_by_time_limit(told: RunTimeLeft, rest_s: float) -> RunTimeLeft:
    """The same, but never more than the time limit leaves (infinite without one)."""
    value = min(told.left.value, rest_s)
    # The truth lies between now and the limit, so nothing can be farther off than the farther one of the two.
    error = min(told.left.error, max(value, rest_s - value))
    return replace(told, left=replace(told.left, value=value, error=error))

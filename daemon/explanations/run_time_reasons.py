"""A job's run time: what is expected, from which source, how surely, and what is left of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from slurm_soda.daemon import readable
from slurm_soda.daemon.store.tables.kind_profiles import RunTimePrediction
from slurm_soda.daemon.store.tables.scheduling import JobRun
from slurm_soda.policies.explanation.explanation import Explanation


@dataclass(frozen=True, slots=True)
class ExpectedRunTime:
    """A job's run time as it is expected now."""

    prediction: RunTimePrediction
    attained_s: float
    """What it has run so far, over all runs."""
    run_s: float
    """All of it."""
    error_s: float | None

    @property
    def left_s(self) -> float:
        """At least 0."""
        return max(self.run_s - self.attained_s, 0.0)


def expected_run_time(
    prediction: RunTimePrediction | None, runs: Sequence[JobRun], now_s: float
) -> ExpectedRunTime | None:
    """What is expected of a job that has run so long; None where nobody said anything."""
    if prediction is None:
        return None
    attained_s = math.fsum(max((now_s if run.end_s is None else run.end_s) - run.start_s, 0.0) for run in runs)
    run_s, error_s = prediction.run_s, prediction.error_s
    if prediction.curve and attained_s:
        run_s, error_s = _on_curve(prediction.curve, attained_s)
    return ExpectedRunTime(prediction, attained_s, run_s, error_s)


def _on_curve(curve: Sequence[Sequence[float]], attained_s: float) -> tuple[float, float]:
    """Linear between two points; beyond the last one a job has as long left as it ran."""
    for (low, least, error), (high, most, later) in pairwise(curve):
        if low <= attained_s < high:
            share = (attained_s - low) / (high - low)
            return max(least + share * (most - least), attained_s), error + share * (later - error)
    return 2 * attained_s, attained_s


def explain_run_time(expected: ExpectedRunTime | None, *, ended: bool) -> Explanation:
    """What is expected and what is left of it; empty where nobody said anything.

    Of an ended job that had its time limit only there are numbers and no sentence.
    """
    if expected is None:
        return Explanation()
    prediction = expected.prediction
    numbers = {
        "by": prediction.predicted_by,
        "run_s": expected.run_s,
        "error_s": expected.error_s,
        "attained_s": expected.attained_s,
        "left_s": None if ended else expected.left_s,
        "jobs": prediction.jobs,
        "basis": prediction.basis,
        "first_s": prediction.run_s,
        "told_s": prediction.at_s,
        "actual_s": prediction.actual_s,
    }
    sentence = _ended_sentence(prediction) if ended else _live_sentence(expected)
    return Explanation((sentence,) if sentence else (), numbers)


def _ended_sentence(prediction: RunTimePrediction) -> str:
    if prediction.predicted_by == "limit" or not prediction.actual_s:
        return ""
    first, ran = readable.format_duration(prediction.run_s), readable.format_duration(prediction.actual_s)
    return f"It was expected to run {first} when it came, {_source_text(prediction)}; it ran {ran}."


def _live_sentence(expected: ExpectedRunTime) -> str:
    run, by = readable.format_duration(expected.run_s), _source_text(expected.prediction)
    if expected.prediction.predicted_by == "limit":
        return f"Nobody knows how long it will run: at most {run}, {by}."
    error = "" if expected.error_s is None else f", give or take {readable.format_duration(expected.error_s)}"
    left = f"; {readable.format_duration(expected.left_s)} are left" if expected.attained_s else ""
    return f"It is expected to run {run}{error}, {by}{left}."


def _source_text(prediction: RunTimePrediction) -> str:
    """From whom it is known."""
    if prediction.predicted_by == "history":
        jobs = "1 like job" if prediction.jobs == 1 else f"{prediction.jobs} like jobs"
        return f"learned from {jobs} ({prediction.basis})"
    if prediction.predicted_by in ("progress", "iterations"):
        return "by its iterations and what each of them takes"
    return "by its time limit"

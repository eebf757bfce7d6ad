"""What to tell a person about a job's run time: what is expected, from whom, how surely, and what is left of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slurm_soda.daemon.store.tables.kind_profiles import RunTimePrediction
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Document


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


def list_run_time_reasons(job: Job, now: ExpectedRunTime | None) -> Iterator[str]:
    """Sentences; none where nobody said anything, or an ended job had its time limit only."""
    if now is None:
        return
    by = source_text(now.prediction)
    if now.prediction.predicted_by == "limit":
        if job.end_s is None:
            yield f"Nobody knows how long it will run: at most {output.format_duration(now.run_s)}, {by}."
        return
    if job.end_s is not None:
        if now.prediction.actual_s:
            first, ran = output.format_duration(now.prediction.run_s), output.format_duration(now.prediction.actual_s)
            yield f"It was expected to run {first} when it came, {by}; it ran {ran}."
        return
    about = "" if now.error_s is None else f", give or take {output.format_duration(now.error_s)}"
    left = f"; {output.format_duration(now.left_s)} are left" if now.attained_s else ""
    yield f"It is expected to run {output.format_duration(now.run_s)}{about}, {by}{left}."


def source_text(prediction: RunTimePrediction) -> str:
    """From whom it is known."""
    if prediction.predicted_by == "history":
        jobs = "1 like job" if prediction.jobs == 1 else f"{prediction.jobs} like jobs"
        return f"learned from {jobs} ({prediction.basis})"
    if prediction.predicted_by in ("progress", "iterations"):
        return "by its iterations and what each of them takes"
    return "by its time limit"


def run_time_document(now: ExpectedRunTime | None) -> Document | None:
    """The same as plain data."""
    if now is None:
        return None
    prediction = now.prediction
    return {
        "by": prediction.predicted_by,
        "run_s": now.run_s,
        "error_s": now.error_s,
        "attained_s": now.attained_s,
        "left_s": now.left_s,
        "jobs": prediction.jobs,
        "basis": prediction.basis,
        "first_s": prediction.run_s,
        "told_s": prediction.at_s,
        "actual_s": prediction.actual_s,
    }

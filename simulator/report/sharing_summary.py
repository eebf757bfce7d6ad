"""Figures of a run in which jobs could share GPUs; every GPU counts once, however many jobs it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.charts.curves import UsageCurve, usage_curve_of_intervals, usage_curve_of_run

_UNKNOWN = float("nan")


@dataclass(frozen=True, slots=True)
class SharingSummary:
    """NaN, and no time or times, where jobs could not share."""

    gpu_shared_ratio: float
    """Part of the time of GPUs in use in which they had two jobs or more."""
    gpu_shared_s: float
    """That time, summed over GPUs."""
    shared_slowdown: float
    """Mean over the time that jobs had partners of their iteration time over that alone; NaN where none had."""
    out_of_memory: int
    """Times that a job could not start, since it did not fit beside those who were there."""
    revoked: int
    """Times that a job's seat ended with its host's job."""
    lost_gpu_s: float
    """Work that was lost by that, of one GPU at full speed."""
    parted: int
    """Times that a guest was preempted since a slowdown was observed beyond a bound."""


def summarise_sharing(outcome: SimulationOutcome) -> SharingSummary:
    """Of a run."""
    seen = outcome.sharing
    if seen is None:
        return SharingSummary(_UNKNOWN, 0.0, _UNKNOWN, 0, 0, 0.0, 0)
    total_s = float(seen.shared_s.sum())
    slowed_s = float(np.nansum(seen.xi * seen.shared_s))
    return SharingSummary(
        gpu_shared_ratio=seen.shared_gpu_s / seen.busy_gpu_s if seen.busy_gpu_s else _UNKNOWN,
        gpu_shared_s=seen.shared_gpu_s,
        shared_slowdown=slowed_s / total_s if total_s else _UNKNOWN,
        out_of_memory=int(seen.out_of_memory.sum()),
        revoked=int(seen.revoked.sum()),
        lost_gpu_s=float((seen.lost_s * outcome.workload.gpus).sum()),
        parted=int(seen.parted.sum()),
    )


def gpus_in_use_s(outcome: SimulationOutcome, first_s: float, last_s: float) -> float | None:
    """Time of GPUs with a job between two times, summed over GPUs; None where jobs could not share."""
    if outcome.sharing is None:
        return None
    parts = outcome.sharing.stretches
    time_s: FloatColumn = np.minimum(parts.end_s, last_s) - np.maximum(parts.start_s, first_s)
    return float(np.maximum(time_s, 0.0).sum())


def gpu_usage_curve(outcome: SimulationOutcome) -> UsageCurve:
    """GPUs with a job over time, from the first submission until nothing runs."""
    if outcome.sharing is None:
        return usage_curve_of_run(outcome, outcome.segments.gpus)
    parts, submit_s = outcome.sharing.stretches, outcome.workload.submit_s
    first_s = float(submit_s.min()) if len(submit_s) else 0.0
    last_s = float(outcome.segments.end_s.max()) if len(outcome.segments.job) else first_s
    return usage_curve_of_intervals(parts.start_s, parts.end_s, np.ones(len(parts.device)), (first_s, last_s))

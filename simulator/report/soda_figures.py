"""Figures of SODA's evaluation: how much of the cluster is active and busy, who starts at once, how long users wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn
from slurm_soda.simulator.node.node_measurements import UsageIntervals
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.charts.curves import UsageCurve, usage_curve_of_intervals
from slurm_soda.simulator.report.sharing_summary import gpus_in_use_s

IMMEDIATE_START_S = 1.0
"""A start this soon is one without queueing."""
MINUTE_S, HOUR_S, TEN_S = 60.0, 3_600.0, 10.0
"""Waits that Section VI-C tells of."""
_UNKNOWN = float("nan")
_HOURS = 24


@dataclass(frozen=True, slots=True)
class ClusterActivity:
    """What jobs held from the first submission to the last, over what the cluster has; NaN where nobody knows."""

    gpu_active_ratio: float
    """GPUs that a job holds, of all GPUs (SODA, Section III-A, Equation 1)."""
    gpu_busy_ratio: float
    """Mean GPU utilisation of the active GPUs ("the average across all active" ones, Section III-A)."""
    gpu_busy_all_ratio: float
    """The same over all GPUs: active times utilisation."""
    cpu_active_ratio: float
    """Cores that a job holds, of all cores."""


@dataclass(frozen=True, slots=True)
class StartDelays:
    """Shares of jobs by the time from submission to the first start; NaN without such jobs."""

    gpu_at_once_ratio: float
    gpu_over_minute_ratio: float
    gpu_over_hour_ratio: float
    cpu_within_10s_ratio: float
    cpu_within_minute_ratio: float


@dataclass(frozen=True, slots=True)
class SodaCurves:
    """What pictures of one run show; times of day count from the first submission."""

    gpus_active: UsageCurve
    gpus_busy: UsageCurve
    """Active GPUs times their utilisation, in GPUs."""
    cpus_active: UsageCurve
    gpu_wait_s: FloatColumn
    """First waits of GPU jobs, in the workload's order; NaN for one that never started."""
    cpu_wait_s: FloatColumn
    user_p99_s: FloatColumn
    """99th percentile of each user's waits, restarts included, by the number of its jobs, most first (Figure 14)."""
    more_cores: FloatColumn
    """Cores per GPU that each training job had last, less those asked for (Figure 15b)."""
    by_hour: FloatColumn
    """Shape (3, 24): GPUs active, GPUs busy and cores active on average, by hour of the trace's day; NaN: no such hour."""


def measure_activity(outcome: SimulationOutcome, cpus: int) -> ClusterActivity:
    """Of a run; ``cpus`` are the cluster's cores, 0 where nobody counts them."""
    submit_s = outcome.workload.submit_s
    first_s, last_s = (float(submit_s.min()), float(submit_s.max())) if len(submit_s) else (0.0, 0.0)
    parts = held_by_all(outcome)
    time_s = np.maximum(np.minimum(parts.end_s, last_s) - np.maximum(parts.start_s, first_s), 0.0)
    gpu_s, span_s = time_s * parts.gpus, last_s - first_s
    busy_ratio = gpu_busy_s = _UNKNOWN
    if outcome.node_measurements is not None:
        ratio = parts.busy_ratio
        known = np.isfinite(ratio)
        gpu_busy_s = float((gpu_s * ratio)[known].sum())
        busy_ratio = _over(gpu_busy_s, float(gpu_s[known].sum()))
    gpus, in_use_s = outcome.cluster.total_gpus, gpus_in_use_s(outcome, first_s, last_s)
    return ClusterActivity(
        gpu_active_ratio=_over(float(gpu_s.sum()) if in_use_s is None else in_use_s, gpus * span_s),
        gpu_busy_ratio=busy_ratio,
        gpu_busy_all_ratio=_over(gpu_busy_s, gpus * span_s),
        cpu_active_ratio=_over(float((time_s * parts.cpus).sum()), cpus * span_s),
    )


def held_by_all(outcome: SimulationOutcome) -> UsageIntervals:
    """What jobs and services held, from when to when; ``busy_ratio`` is NaN where nodes had no part in speed."""
    if outcome.node_measurements is None:
        jobs = outcome.segments
        unknown = np.full(len(jobs.job), np.nan)
        parts = UsageIntervals(jobs.job, jobs.start_s, jobs.end_s, jobs.gpus, jobs.cpus, unknown)
    else:
        parts = outcome.node_measurements.stretches
    if outcome.services is None:
        return parts
    both = (parts, outcome.services.usage)
    columns = {name: np.concatenate([getattr(one, name) for one in both]) for name in parts.__dataclass_fields__}
    return UsageIntervals(**columns)


def first_wait_s(outcome: SimulationOutcome) -> FloatColumn:
    """Time from submission to the first start of each job; NaN for one that never started."""
    return outcome.first_start_s - outcome.workload.submit_s


def measure_start_delays(outcome: SimulationOutcome) -> StartDelays:
    """Of a run; a job that never started waited for ever."""
    wait_s = np.nan_to_num(first_wait_s(outcome), nan=np.inf)
    gpu = outcome.workload.gpus > 0
    return StartDelays(
        gpu_at_once_ratio=_share(wait_s <= IMMEDIATE_START_S, gpu),
        gpu_over_minute_ratio=_share(wait_s > MINUTE_S, gpu),
        gpu_over_hour_ratio=_share(wait_s > HOUR_S, gpu),
        cpu_within_10s_ratio=_share(wait_s <= TEN_S, ~gpu),
        cpu_within_minute_ratio=_share(wait_s <= MINUTE_S, ~gpu),
    )


def make_soda_curves(outcome: SimulationOutcome, waits_s: FloatColumn) -> SodaCurves | None:
    """What pictures need; ``waits_s`` is all waiting of each job. None where nodes had no part in speed."""
    if outcome.node_measurements is None:
        return None
    work, parts, trains = outcome.workload, held_by_all(outcome), outcome.node_measurements.trains
    first_s, wait_s, gpu = float(work.submit_s.min(initial=0.0)), first_wait_s(outcome), work.gpus > 0
    ran = trains & (outcome.node_measurements.cpus >= 0)
    edges = (first_s, float(work.submit_s.max(initial=first_s + 1.0)))
    busy = np.asarray(parts.gpus * np.nan_to_num(parts.busy_ratio), dtype=np.float64)
    return SodaCurves(
        gpus_active=usage_curve_of_intervals(
            parts.start_s, parts.end_s, np.asarray(parts.gpus, dtype=np.float64), edges
        ),
        gpus_busy=usage_curve_of_intervals(parts.start_s, parts.end_s, busy, edges),
        cpus_active=usage_curve_of_intervals(
            parts.start_s, parts.end_s, np.asarray(parts.cpus, dtype=np.float64), edges
        ),
        gpu_wait_s=wait_s[gpu],
        cpu_wait_s=wait_s[~gpu],
        user_p99_s=_by_user(work.user, waits_s),
        by_hour=np.stack([_by_hour(parts, held, edges) for held in (parts.gpus, busy, parts.cpus)]),
        more_cores=((outcome.node_measurements.cpus - work.cpus)[ran] / work.gpus[ran]).astype(np.float64),
    )


def _by_hour(parts: UsageIntervals, held: FloatColumn | IntColumn, span_s: tuple[float, float]) -> FloatColumn:
    """What is held on average in each hour of the day, over the whole hours of a time."""
    first, last = math.ceil(span_s[0] / HOUR_S), math.floor(span_s[1] / HOUR_S)
    if last <= first:
        return np.full(_HOURS, _UNKNOWN)
    whole_s = (first * HOUR_S, last * HOUR_S)
    mean = usage_curve_of_intervals(parts.start_s, parts.end_s, held.astype(np.float64), whole_s, last - first).mean
    hour = np.arange(first, last) % _HOURS
    counts = np.bincount(hour, minlength=_HOURS)
    sums = np.bincount(hour, mean, minlength=_HOURS)
    found: FloatColumn = np.divide(sums, counts, out=np.full(_HOURS, _UNKNOWN), where=counts > 0)
    return found


def _by_user(user: IntColumn, waits_s: FloatColumn) -> FloatColumn:
    known = np.isfinite(waits_s)
    counts = np.bincount(user[known & (user >= 0)])
    order = np.argsort(-counts, kind="stable")
    return np.array([np.percentile(waits_s[known & (user == at)], 99) for at in order.tolist() if counts[at]])


def _share(holds: BoolColumn, among: BoolColumn) -> float:
    return float(holds[among].mean()) if among.any() else _UNKNOWN


def _over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else _UNKNOWN

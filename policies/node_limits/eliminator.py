"""Decides which CPU job is held back when the node's memory is contended (SODA, Section V-E). Pure: no file, no clock.

Above 75 % of the node's bandwidth the worst CPU job is throttled a step; without MBA it loses half its cores;
without MBM a fall of a GPU job's utilisation below its stable level stands for the bandwidth. Limits are taken back step
by step well below the threshold. GPU jobs are never limited: they are not among the candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from slurm_soda.policies.node_limits.contention_sample import ContentionSample, CpuJob, GpuJob
from slurm_soda.policies.node_limits.thresholds import ContentionThresholds

MOST_RELAPSES = 4
"""A job that is throttled again after its release waits twice as long for the next one, this many times."""


@dataclass(frozen=True, slots=True)
class LimitedCpuJob:
    """A CPU job that is or was held back."""

    job_id: int
    level: int
    """Steps taken; 0: free again."""
    cores: int = 0
    """What it was allocated, where cores are what is limited; 0: MBA."""
    relapses: int = 0


@dataclass(frozen=True, slots=True)
class StableUtilisation:
    """A GPU job's undisturbed utilisation: the mean of ``samples``."""

    job_id: int
    samples: int
    util_ratio: float


@dataclass(frozen=True, slots=True)
class EliminatorState:
    """What the next decision needs of the earlier ones."""

    over: int = 0
    under: int = 0
    futile_samples: int = 0
    peak_bytes_per_s: float = 0.0
    held: tuple[LimitedCpuJob, ...] = ()
    stable: tuple[StableUtilisation, ...] = ()

    def without(self, job_id: int) -> EliminatorState:
        """The state where a limit could not be set after all."""
        return replace(self, held=tuple(h for h in self.held if h.job_id != job_id))

    def without_stable_levels(self, job_ids: Collection[int]) -> EliminatorState:
        """The state where these GPU jobs' stable levels are void: something else has changed them."""
        return replace(self, stable=tuple(s for s in self.stable if s.job_id not in job_ids))


@dataclass(frozen=True, slots=True)
class ThrottleBandwidth:
    """Give a job this percentage of memory bandwidth (MBA)."""

    job_id: int
    percent: int


@dataclass(frozen=True, slots=True)
class ReleaseBandwidth:
    """Take a job's MBA limit back."""

    job_id: int


@dataclass(frozen=True, slots=True)
class LimitCores:
    """Let a job run on this many of its cores."""

    job_id: int
    cores: int


@dataclass(frozen=True, slots=True)
class RestoreCores:
    """Give a job all its cores back."""

    job_id: int


LimitAction = ThrottleBandwidth | ReleaseBandwidth | LimitCores | RestoreCores


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """What to do now, at most one job a sample except when all are released, and the state for the next sample."""

    actions: tuple[LimitAction, ...]
    state: EliminatorState


class _Pressure(Enum):
    OVER = "over"
    BETWEEN = "between"
    UNDER = "under"
    UNKNOWN = "unknown"


def decide_limits(sample: ContentionSample, state: EliminatorState, limits: ContentionThresholds) -> LimitDecision:
    """Hold back or release CPU jobs of one node.

    After ``over_samples`` samples in a row over the threshold the CPU job with the highest bandwidth that can be held
    back further (then those without a counter, by cores; ties by job id) goes one step down, and counting starts again.
    After ``release_samples`` in a row below ``release_ratio`` the most limited job (ties by job id) goes one step up.
    A sample in between starts both counts again; a sample without values changes nothing. Without a GPU job there is
    nobody to protect: all limits go at once.
    """
    state = _forget_ended(sample, state)
    if not sample.gpu_jobs:
        return _release_all(replace(state, over=0, under=0, futile_samples=0))
    state, pressure = (
        _by_bandwidth(sample, state, limits) if limits.monitored else _by_utilisation(sample, state, limits)
    )
    match pressure:
        case _Pressure.OVER:
            state = replace(state, over=state.over + 1, under=0)
            return _tighten(sample, state, limits) if state.over >= limits.over_samples else LimitDecision((), state)
        case _Pressure.UNDER:
            return _loosen(replace(state, over=0, under=state.under + 1, futile_samples=0), limits)
        case _Pressure.BETWEEN:
            return LimitDecision((), replace(state, over=0, under=0))
    return LimitDecision((), state)


def _forget_ended(sample: ContentionSample, state: EliminatorState) -> EliminatorState:
    cpu, gpu = {job.job_id for job in sample.cpu_jobs}, {job.job_id for job in sample.gpu_jobs}
    return replace(
        state,
        held=tuple(h for h in state.held if h.job_id in cpu),
        stable=tuple(s for s in state.stable if s.job_id in gpu),
    )


def _by_bandwidth(
    sample: ContentionSample, state: EliminatorState, limits: ContentionThresholds
) -> tuple[EliminatorState, _Pressure]:
    if sample.node_bytes_per_s is None:
        return state, _Pressure.UNKNOWN
    state = replace(state, peak_bytes_per_s=max(state.peak_bytes_per_s, sample.node_bytes_per_s))
    learned = state.peak_bytes_per_s if state.peak_bytes_per_s >= limits.learned_floor_bytes_per_s else 0.0
    node = limits.node_bytes_per_s or learned
    ratio = sample.node_bytes_per_s / node if node else 0.0
    if limits.domain_bytes_per_s and sample.domain_bytes_per_s is not None:
        ratio = max(ratio, sample.domain_bytes_per_s / limits.domain_bytes_per_s)
    if ratio > limits.over_ratio:
        return state, _Pressure.OVER
    if not sample.complete:
        return state, _Pressure.UNKNOWN
    return state, _Pressure.UNDER if ratio < limits.release_ratio else _Pressure.BETWEEN


def _by_utilisation(
    sample: ContentionSample, state: EliminatorState, limits: ContentionThresholds
) -> tuple[EliminatorState, _Pressure]:
    known = {s.job_id: s for s in state.stable}
    falls = []
    for job in sample.gpu_jobs:
        level = known.get(job.job_id) or _first_level(job, limits)
        if job.util_ratio is not None and level.samples < limits.stable_samples:
            mean = (level.util_ratio * level.samples + job.util_ratio) / (level.samples + 1)
            level = StableUtilisation(job.job_id, level.samples + 1, mean)
        elif job.util_ratio is not None:
            falls.append(level.util_ratio - job.util_ratio)
        known[job.job_id] = level
    state = replace(state, stable=tuple(known[job.job_id] for job in sample.gpu_jobs))
    if not falls:
        return state, _Pressure.UNKNOWN
    if max(falls) > limits.drop_ratio:
        return state, _Pressure.OVER
    return state, _Pressure.UNDER if max(falls) < limits.drop_ratio / 2 else _Pressure.BETWEEN


def _first_level(job: GpuJob, limits: ContentionThresholds) -> StableUtilisation:
    if job.stable_util_ratio is None:
        return StableUtilisation(job.job_id, 0, 0.0)
    return StableUtilisation(job.job_id, limits.stable_samples, job.stable_util_ratio)


def _tighten(sample: ContentionSample, state: EliminatorState, limits: ContentionThresholds) -> LimitDecision:
    held = {h.job_id: h for h in state.held}
    for job in sorted(sample.cpu_jobs, key=_worst_first):
        before = held.get(job.job_id) or LimitedCpuJob(job.job_id, 0)
        after = _one_further(job, before, limits)
        if after is not None and _matters(job, sample, limits):
            if not before.level and job.job_id in held:
                after = replace(after, relapses=min(before.relapses + 1, MOST_RELAPSES))
            return LimitDecision((_action(after, limits),), replace(_with(state, after), over=0, futile_samples=0))
    state = replace(state, futile_samples=state.futile_samples + 1)
    if limits.monitored or state.futile_samples < limits.give_up_samples:
        return LimitDecision((), state)
    nothing_known = tuple(StableUtilisation(job.job_id, 0, 0.0) for job in sample.gpu_jobs)
    return _release_all(replace(state, over=0, futile_samples=0, stable=nothing_known))


def _worst_first(job: CpuJob) -> tuple[bool, float, int]:
    unknown = job.bytes_per_s is None
    return unknown, -(float(job.cores) if job.bytes_per_s is None else job.bytes_per_s), job.job_id


def _matters(job: CpuJob, sample: ContentionSample, limits: ContentionThresholds) -> bool:
    if job.bytes_per_s is None or not sample.node_bytes_per_s:
        return True
    return job.bytes_per_s >= limits.least_share_ratio * sample.node_bytes_per_s


def _one_further(job: CpuJob, held: LimitedCpuJob, limits: ContentionThresholds) -> LimitedCpuJob | None:
    """The job one step further down, or None where there is none. A job held by one means stays with it."""
    by_cores = bool(held.cores) if held.level else not limits.mba_steps
    if not by_cores:
        return replace(held, level=held.level + 1, cores=0) if held.level < len(limits.mba_steps) else None
    if held.level >= limits.most_halvings or _halved(job.cores, held.level) <= 1:
        return None
    return replace(held, level=held.level + 1, cores=job.cores)


def _halved(cores: int, times: int) -> int:
    return max(-(-cores // (1 << times)), 1)


def _loosen(state: EliminatorState, limits: ContentionThresholds) -> LimitDecision:
    limited = [h for h in state.held if h.level]
    if not limited:
        return LimitDecision((), state)
    most = min(limited, key=lambda h: (-h.level, h.job_id))
    if state.under < limits.release_samples * 2**most.relapses:
        return LimitDecision((), state)
    gone = not most.cores and not limits.mba_steps  # MBA is not to be had any more: no step in between can be set
    after = replace(most, level=0 if gone else most.level - 1)
    return LimitDecision((_action(after, limits),), replace(_with(state, after), under=0))


def _release_all(state: EliminatorState) -> LimitDecision:
    freed = [replace(h, level=0) for h in state.held if h.level]
    return LimitDecision(tuple(_free(h) for h in freed), _with(state, *freed))


def _action(held: LimitedCpuJob, limits: ContentionThresholds) -> LimitAction:
    if not held.level:
        return _free(held)
    if held.cores:
        return LimitCores(held.job_id, _halved(held.cores, held.level))
    return ThrottleBandwidth(held.job_id, limits.mba_steps[min(held.level, len(limits.mba_steps)) - 1])


def _free(held: LimitedCpuJob) -> LimitAction:
    return RestoreCores(held.job_id) if held.cores else ReleaseBandwidth(held.job_id)


def _with(state: EliminatorState, *changed: LimitedCpuJob) -> EliminatorState:
    held: Iterable[LimitedCpuJob] = {**{h.job_id: h for h in state.held}, **{h.job_id: h for h in changed}}.values()
    return replace(state, held=tuple(sorted(held, key=lambda h: h.job_id)))

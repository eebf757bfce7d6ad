"""What a report says of a job against what its GPUs did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report_accuracy.patterns import MadeJob, Pattern
from slurm_soda.daemon.job_reports.model import GpuFigures, JobReport

TOLD_SPAN_S = 5.0
"""Shorter ones are not told."""
EDGE_S = 4.0
"""A span that is longer by this must be told: each end may be off by one interval."""


@dataclass(frozen=True, slots=True)
class GpuJudgement:
    """One GPU of one job."""

    util_off: float
    """Percentage points."""
    spans_told: int
    span_start_off_s: float
    """Largest, of the spans that are told,"""
    span_length_off_s: float
    """and of their lengths."""
    idle_off: float
    """All time in which it was idle, in percentage points of the run."""
    invented: int
    """Spans that are told where the GPU was busy."""
    lost: int
    """Long ones that are neither told nor shorter than all that are."""
    never_used_right: bool


def judge(job: MadeJob, report: JobReport, began_s: float) -> list[GpuJudgement]:
    """GPU by GPU."""
    (run,) = report.runs
    (node,) = run.nodes
    return [_judge(pattern, gpu, began_s) for pattern, gpu in zip(job.gpus, node.gpus, strict=True)]


def _judge(pattern: Pattern, gpu: GpuFigures, began_s: float) -> GpuJudgement:
    true = pattern.idle_spans()
    told = [(span.start_s - began_s, span.length_s) for span in gpu.longest_idle]
    pairs = [(one, found) for one in told if (found := _match(one, pattern.idle_spans(0.0))) is not None]
    shortest_s = min((length_s for _, length_s in told), default=0.0) if gpu.idle_spans > len(told) else TOLD_SPAN_S
    long = [span for span in true if span[1] > shortest_s + EDGE_S]
    idle_s = sum(length_s for _, length_s in pattern.idle_spans(0.0))
    return GpuJudgement(
        util_off=100 * (gpu.util_ratio - pattern.mean_ratio),
        spans_told=len(told),
        span_start_off_s=max((abs(one[0] - found[0]) for one, found in pairs), default=0.0),
        span_length_off_s=max((abs(one[1] - found[1]) for one, found in pairs), default=0.0),
        idle_off=100 * (gpu.idle_s - idle_s) / pattern.phases[-1].until_s,
        invented=len(told) - len(pairs),
        lost=sum(not any(_overlap(span, one) > 0 for one in told) for span in long),
        never_used_right=gpu.never_used != pattern.is_used,
    )


def _match(told: tuple[float, float], true: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The true span that it tells of; one of just less than 5 s may be told as one of just more."""
    best = max(true, key=lambda span: _overlap(told, span), default=None)
    return best if best is not None and _overlap(told, best) > 0 else None


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    return min(sum(one), sum(other)) - max(one[0], other[0])

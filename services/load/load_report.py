"""What became of the queries of a load, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from slurm_soda.services.percentile import percentile


@dataclass(frozen=True, slots=True)
class SentQuery:
    """One query."""

    planned_s: float
    """When it was due, from the start."""
    late_s: float
    """How much later it was sent."""
    latency_s: float
    """From when it was due to the whole answer, or to its error."""
    error: str = ""
    """Empty: it was answered."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Figures of a load; latencies are those of answered queries, from when they were due."""

    queries: int
    errors: int
    violations: int
    """Answered, but later than the target."""
    target_ms: float
    within_target_ratio: float
    """Of all queries, errors among them, those that were answered within the target."""
    duration_s: float
    """From the start to the last answer."""
    planned_qps: float
    """Up to the last query that was due."""
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    p99_late_ms: float
    """By how much queries were sent late: where it is a large part of the latency, the generator's machine is too slow."""
    errors_by_kind: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def load_report(queries: Sequence[SentQuery], target_ms: float) -> LoadReport:
    """The figures of ``queries`` against a target."""
    answered_ms = [1000.0 * query.latency_s for query in queries if not query.error]
    violations = sum(latency_ms > target_ms for latency_ms in answered_ms)
    planned_s = max((query.planned_s for query in queries), default=0.0)
    return LoadReport(
        queries=len(queries),
        errors=len(queries) - len(answered_ms),
        violations=violations,
        target_ms=target_ms,
        within_target_ratio=(len(answered_ms) - violations) / len(queries) if queries else 0.0,
        duration_s=max((query.planned_s + query.latency_s for query in queries), default=0.0),
        planned_qps=(len(queries) - 1) / planned_s if planned_s > 0.0 else 0.0,
        p50_ms=percentile(answered_ms, 0.50),
        p95_ms=percentile(answered_ms, 0.95),
        p99_ms=percentile(answered_ms, 0.99),
        max_ms=max(answered_ms, default=0.0),
        p99_late_ms=1000.0 * percentile([query.late_s for query in queries], 0.99),
        errors_by_kind=dict(Counter(query.error for query in queries if query.error)),
    )

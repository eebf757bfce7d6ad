"""What became of the queries of a load around events: kills, bursts, hand-overs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from slurm_soda.services.load.load_report import SentQuery, load_report
from slurm_soda.services.percentile import percentile

WINDOW_S = 5.0
"""Queries of so long make a p99 while a service recovers."""


def recovered_after_s(queries: Sequence[SentQuery], events_s: Sequence[float], target_ms: float) -> list[float]:
    """After each event, the time from which p99 was within the target until the next one; a failure counts as late.

    In whole windows of :data:`WINDOW_S`: 0 if p99 of the first one is within the target already. A query that was in flight
    at an event is one of those after it.
    """
    return [(max(late) + 1) * WINDOW_S if late else 0.0 for late in _late_windows(queries, events_s, target_ms)]


def back_after_s(queries: Sequence[SentQuery], events_s: Sequence[float], target_ms: float) -> list[float]:
    """After each event, the time from which p99 was within the target for three windows; later ones do not count.

    What a busy machine does minutes after an event is not of the event.
    """
    found = []
    for late in _late_windows(queries, events_s, target_ms):
        first = 0
        while late & {first, first + 1, first + 2}:
            first += 1
        found.append(first * WINDOW_S)
    return found


def _late_windows(queries: Sequence[SentQuery], events_s: Sequence[float], target_ms: float) -> list[set[int]]:
    """Of each event, the numbers of the windows after it whose p99 is beyond the target."""
    found = []
    for at_s, next_s in zip(events_s, [*events_s[1:], math.inf], strict=True):
        windows: dict[int, list[float]] = {}
        for query in queries:
            if at_s <= query.planned_s + query.latency_s < next_s:
                latency_ms = math.inf if query.error else 1000 * query.latency_s
                windows.setdefault(int(max(0.0, query.planned_s - at_s) / WINDOW_S), []).append(latency_ms)
        found.append({at for at, here in windows.items() if percentile(here, 0.99) > target_ms})
    return found


def in_flight(queries: Sequence[SentQuery], at_s: float) -> int:
    """Queries that were due and not answered yet at an instant."""
    return sum(query.planned_s <= at_s < query.planned_s + query.latency_s for query in queries)


def lost_between(queries: Sequence[SentQuery], from_s: float, until_s: float) -> int:
    """Queries that failed from one instant to another, by when they were given up."""
    return sum(bool(query.error) and from_s <= query.planned_s + query.latency_s < until_s for query in queries)


def late_after(
    queries: Sequence[SentQuery], from_s: float, until_s: float, target_ms: float, most: int = 20
) -> list[tuple[float, float]]:
    """The first late queries of a time: how long after its beginning each was due, and its latency, seconds."""
    found = [
        (round(query.planned_s - from_s, 1), round(query.latency_s, 2))
        for query in queries
        if from_s <= query.planned_s + query.latency_s < until_s and 1000 * query.latency_s > target_ms
    ]
    return found[:most]


def answered_after_s(queries: Sequence[SentQuery], at_s: float, for_s: float) -> float:
    """How long after an instant the last of the queries was answered, or given up, that were due within ``for_s`` of it."""
    sent = [query.planned_s + query.latency_s for query in queries if at_s <= query.planned_s < at_s + for_s]
    return round(max(sent, default=at_s) - at_s, 2)


def query_figures(queries: Sequence[SentQuery], target_ms: float) -> dict[str, Any]:
    """Counts and latencies of all, rounded for a table."""
    report = load_report(queries, target_ms).to_dict()
    kept = ("queries", "errors", "violations", "p50_ms", "p95_ms", "p99_ms", "max_ms", "p99_late_ms", "errors_by_kind")
    return {key: round(report[key], 1) if isinstance(report[key], float) else report[key] for key in kept}

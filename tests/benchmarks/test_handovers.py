"""What the benchmark of hand-overs makes of the queries that it sent."""

from __future__ import annotations

from benchmarks.handovers import recovered_after_s
from slurm_soda.services.load.load_report import SentQuery


def test_recovery_ends_with_the_last_late_window_before_the_next_event() -> None:
    queries = [SentQuery(at / 10, 0.0, 0.9 if 100 <= at < 160 or 400 <= at < 402 else 0.01) for at in range(600)]
    assert recovered_after_s(queries, [10.0, 40.0]) == [10.0, 5.0]
    assert recovered_after_s(queries, [20.0]) == [25.0]
    assert recovered_after_s(queries, [45.0]) == [0.0]


def test_a_query_in_flight_at_an_event_is_one_of_those_after_it() -> None:
    queries = [SentQuery(float(at), 0.0, 0.9 if at == 9 else 0.01) for at in range(20)]
    assert recovered_after_s(queries, [0.0, 9.5]) == [0.0, 5.0]


def test_a_query_that_failed_is_late() -> None:
    queries = [SentQuery(float(at), 0.0, 0.01, "timeout" if at == 7 else "") for at in range(20)]
    assert recovered_after_s(queries, [0.0]) == [10.0]

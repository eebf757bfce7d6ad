"""What the benchmarks of services make of the queries that they sent."""

from __future__ import annotations

from benchmarks.service_queries import (
    answered_after_s,
    back_after_s,
    in_flight,
    late_after,
    lost_between,
    recovered_after_s,
)
from slurm_soda.services.load.load_report import SentQuery

TARGET_MS = 500.0


def test_recovery_ends_with_the_last_late_window_before_the_next_event() -> None:
    queries = [SentQuery(at / 10, 0.0, 0.9 if 100 <= at < 160 or 400 <= at < 402 else 0.01) for at in range(600)]
    assert recovered_after_s(queries, [10.0, 40.0], TARGET_MS) == [10.0, 5.0]
    assert recovered_after_s(queries, [20.0], TARGET_MS) == [25.0]
    assert recovered_after_s(queries, [45.0], TARGET_MS) == [0.0]
    assert recovered_after_s(queries, [10.0, 40.0], 1000.0) == [0.0, 0.0]


def test_p99_is_back_where_it_holds_for_a_while_whatever_comes_later() -> None:
    queries = [SentQuery(at / 10, 0.0, 0.9 if 100 <= at < 120 or 400 <= at < 402 else 0.01) for at in range(600)]
    assert back_after_s(queries, [10.0, 38.0], TARGET_MS) == [5.0, 5.0]
    assert back_after_s(queries, [13.0], TARGET_MS) == [0.0]


def test_a_query_in_flight_at_an_event_is_one_of_those_after_it() -> None:
    queries = [SentQuery(float(at), 0.0, 0.9 if at == 9 else 0.01) for at in range(20)]
    assert recovered_after_s(queries, [0.0, 9.5], TARGET_MS) == [0.0, 5.0]


def test_a_query_that_failed_is_late() -> None:
    queries = [SentQuery(float(at), 0.0, 0.01, "timeout" if at == 7 else "") for at in range(20)]
    assert recovered_after_s(queries, [0.0], TARGET_MS) == [10.0]


def test_queries_around_an_instant_are_counted_by_when_they_were_due_and_when_they_ended() -> None:
    queries = [SentQuery(1.0, 0.0, 2.0), SentQuery(2.0, 0.0, 3.0, "timeout"), SentQuery(2.5, 0.0, 0.1)]
    assert [in_flight(queries, at_s) for at_s in (0.5, 1.0, 2.55, 3.0, 5.0)] == [0, 1, 3, 1, 0]
    assert lost_between(queries, 2.0, 5.0) == 0
    assert lost_between(queries, 5.0, 6.0) == 1
    assert late_after(queries, 2.0, 5.0, TARGET_MS) == [(-1.0, 2.0)]
    assert late_after(queries, 2.0, 9.0, TARGET_MS) == [(-1.0, 2.0), (0.0, 3.0)]
    assert late_after(queries, 2.0, 9.0, TARGET_MS, most=1) == [(-1.0, 2.0)]
    assert answered_after_s(queries, 1.0, 1.2) == 4.0
    assert answered_after_s(queries, 1.0, 1.0) == 2.0
    assert answered_after_s(queries, 9.0, 1.0) == 0.0

"""Limits on changes, and the breaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.cycle.change_limits import ChangeLimits, CircuitBreaker
from slurm_soda.daemon.settings.scheduling import ChangeLimitSettings
from slurm_soda.slurm_ext.write.job_changes import JobChange, requeue_change


def order(job_id: int) -> JobChange:
    return JobChange(job_id, "order", {"SiteFactor": "1"}, {"SiteFactor": "0"}, "test")


def test_urgent_changes_come_first_and_count() -> None:
    limits = ChangeLimits(ChangeLimitSettings(max_changes_per_cycle=3))
    passed = limits.admit([requeue_change(1, ""), requeue_change(2, "")], [order(3), order(4)], 100.0)
    assert [change.job_id for change in passed.changes] == [1, 2, 3]
    assert (passed.deferred, passed.retry_s) == (1, 100.0)


def test_one_change_per_job_and_interval() -> None:
    limits = ChangeLimits(ChangeLimitSettings(min_change_interval_s=10.0))
    assert len(limits.admit([], [order(1)], 100.0).changes) == 1
    held = limits.admit([], [order(1), order(2)], 105.0)
    assert [change.job_id for change in held.changes] == [2]
    assert held.retry_s == 110.0
    assert len(limits.admit([], [order(1)], 110.0).changes) == 1


def test_what_an_earlier_daemon_changed_counts() -> None:
    limits = ChangeLimits(ChangeLimitSettings(min_change_interval_s=10.0))
    limits.remember(1, 98.0)
    assert not limits.admit([], [order(1)], 100.0).changes


@pytest.mark.parametrize(
    ("most", "services", "ordinary", "passed"),
    [(10, 50, 50, (5, 5)), (10, 50, 2, (8, 2)), (10, 3, 50, (3, 7)), (10, 50, 0, (10, 0)), (1, 5, 5, (1, 0))],
)
def test_services_leave_half_to_others_that_wait(
    most: int, services: int, ordinary: int, passed: tuple[int, int]
) -> None:
    """A user's own tasks, of which he may have thousands, are no reason that nobody's order is sent."""
    limits = ChangeLimits(ChangeLimitSettings(max_changes_per_cycle=most))
    own, others = [order(job_id) for job_id in range(services)], [order(1000 + job_id) for job_id in range(ordinary)]
    admitted = limits.admit([], others, 100.0, services=own)
    ids = [change.job_id for change in admitted.changes]
    assert (sum(one < 1000 for one in ids), sum(one >= 1000 for one in ids)) == passed
    assert ids == sorted(ids), "the first ones of each"
    assert (admitted.deferred, admitted.retry_s) == (services + ordinary - sum(passed), 100.0)


@given(
    st.integers(0, 20),
    st.lists(st.lists(st.integers(1, 8), unique=True, max_size=8), max_size=12),
    st.floats(0.0, 5.0),
)
def test_no_cycle_exceeds_the_limits_and_nothing_is_lost(
    most: int, signal_flags: list[list[int]], interval_s: float
) -> None:
    limits = ChangeLimits(ChangeLimitSettings(max_changes_per_cycle=most, min_change_interval_s=interval_s))
    last: dict[int, float] = {}
    for now_s, job_ids in enumerate(signal_flags):
        passed = limits.admit([], [order(job_id) for job_id in job_ids], float(now_s))
        assert len(passed.changes) <= most
        assert len(passed.changes) + passed.deferred == len(job_ids)
        assert (passed.deferred == 0) == (passed.retry_s == float("inf"))
        for change in passed.changes:
            assert now_s - last.get(change.job_id, -1e9) >= interval_s
            last[change.job_id] = now_s


def test_the_breaker_opens_after_failures_in_a_row_and_again_at_the_next_one() -> None:
    breaker = CircuitBreaker(ChangeLimitSettings(breaker_failures=2, breaker_pause_s=60.0))
    assert not breaker.note_failure(0.0, "no answer")
    breaker.note_success(0.1, 1.0)
    assert not breaker.note_failure(2.0, "no answer")
    assert breaker.note_failure(3.0, "no answer")
    assert breaker.is_open(62.9)
    assert not breaker.is_open(63.0)
    assert breaker.note_failure(64.0, "no answer"), "the first cycle after the pause failed too"
    breaker.note_success(0.1, 130.0)
    assert not breaker.note_failure(131.0, "no answer")


def test_slow_reads_count_as_failures() -> None:
    breaker = CircuitBreaker(ChangeLimitSettings(breaker_failures=2, breaker_slow_s=5.0))
    assert not breaker.note_success(6.0, 0.0)
    assert breaker.note_success(6.0, 10.0)
    assert "6.0 s" in breaker.cause

"""Faults that the agent tells: counted, bounded, forgotten."""

from __future__ import annotations

from slurm_soda.agent.reporting.recent_faults import RecentFaults


def test_faults_are_counted_bounded_and_age() -> None:
    faults = RecentFaults()
    assert faults.add(0.0, "a\nb")
    assert not faults.add(10.0, "a\nb")
    for number in range(40):
        faults.add(20.0 + number, f"f{number}")
    assert len(faults.recent(100.0)) == 32
    assert faults.recent(20.0 + 8 + 3600.5)[0] == "f9"
    fresh = RecentFaults()
    fresh.add(1.0, "x")
    fresh.add(2.0, "x")
    assert fresh.recent(3.0) == ("x (x2)",)


def test_faults_are_forgotten_after_an_hour_also_when_the_clock_is_set_back() -> None:
    faults = RecentFaults()
    faults.add(100_000.0, "a fault")
    assert faults.recent(5_000.0) == ("a fault",)
    assert faults.recent(8_600.0) == ("a fault",)
    assert faults.recent(8_601.0) == ()

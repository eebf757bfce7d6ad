"""``sodactl explain`` and ``status``: when a job is expected to start, and how often that was right."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart, StartForecastRow

from .conftest import NOW_S, SUBMIT_S, Bench, record, stored_job


def expect(soda: Bench, *ends_s: float | None, outcomes: tuple[float, ...] = (), **more: Any) -> str:
    """What is said of a job that is expected to start in so many seconds; ``outcomes`` of forecasts of 100 to 300 s."""
    job = stored_job(7, **more)
    soda.daemon()
    soda.cycle()
    soda.add(job, other := stored_job(8, state="RUNNING"))
    low_s, median_s, high_s = (None if end_s is None else NOW_S + end_s for end_s in ends_s)
    soda.add(ExpectedStart(job_pk=job.id, at_s=NOW_S - 30, low_s=low_s, median_s=median_s, high_s=high_s))
    for waited_s in outcomes:
        soda.add(
            StartForecastRow(
                job_pk=other.id, at_s=SUBMIT_S, drawn_low_s=150.0, drawn_median_s=200.0, drawn_high_s=250.0,
                low_s=100.0, median_s=200.0, high_s=300.0, started_s=SUBMIT_S + waited_s,
            )
        )  # fmt: skip
    soda.slurm.queue = [record(7, state=job.state), record(8, state="RUNNING")]
    return "\n".join(soda("explain", "7", "--json").document["reasons"])


def test_the_interval_and_how_often_such_intervals_were_right(soda: Bench) -> None:
    told = expect(soda, 600.0, 1800.0, 7200.0, outcomes=(200.0,) * 32 + (50.0,) * 5 + (900.0,) * 3)
    assert ", in 30 min 00 s; with 80 % probability between " in told
    assert "Of the last 40 intervals 80 % held the true start, 12 % of starts came earlier and 8 % later." in told
    document = soda("explain", "7", "--json").document["expected_start"]
    assert (document["low_s"], document["high_s"]) == (NOW_S + 600.0, NOW_S + 7200.0)
    score = {"forecasts": 40, "held_ratio": 0.8, "earlier_ratio": 0.125, "later_ratio": 0.075}
    assert document["score"] == score
    assert soda("status", "--json").document["expected_starts"] == score
    assert "of the last 40 intervals 80 % held the true start" in soda("status").out


@pytest.mark.parametrize(
    ("ends_s", "sentence"),
    [
        ((0.0, 0.0, 10.0), "It is expected to start now."),
        ((0.0, 600.0, 900.0), "in 10 min 00 s; with 80 % probability by "),
        ((-50.0, 20.0, 900.0), "It is expected to start at any moment; with 80 % probability by "),
        ((600.0, 900.0, None), "It is expected to start after "),
        ((None, None, None), "When it will start cannot be said: "),
    ],
)
def test_what_is_said_of_odd_intervals(soda: Bench, ends_s: tuple[float | None, ...], sentence: str) -> None:
    assert sentence in expect(soda, *ends_s)


def test_few_outcomes_are_no_ground_for_trust(soda: Bench) -> None:
    told = expect(soda, 600.0, 1800.0, 7200.0, outcomes=(200.0,) * 3)
    assert "How far to trust that is not known yet: 3 forecasts could be compared with starts so far." in told


def test_nothing_is_said_of_a_job_that_runs(soda: Bench) -> None:
    assert "expected to start" not in expect(soda, 600.0, 1800.0, 7200.0, state="RUNNING")


def test_a_job_without_a_forecast(soda: Bench) -> None:
    soda.daemon()
    soda.add(stored_job(7))
    soda.slurm.queue = [record(7)]
    assert soda("explain", "7", "--json").document["expected_start"] is None
    assert soda("status", "--json").document["expected_starts"]["held_ratio"] is None

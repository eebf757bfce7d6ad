"""Forecasts of starts in whole cycles: told while a job waits, compared with its start, and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from slurm_soda.daemon.api.view_json import decode_view, encode_view
from slurm_soda.daemon.api.views import JobDetailView, StatusView, ViewHeader, job_detail_view, status_view
from slurm_soda.daemon.learning import start_forecasts
from slurm_soda.daemon.store.start_forecasts import expected_start_of, newest_outcomes, score_of_intervals
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart, StartForecastRow
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.test_foresight import past_job

Start = Callable[..., Daemon]
HEAD = ViewHeader(None, daemon_alive=True, stall="", mode="enforce", policy="sjf", parameters={})


def kept(sodad: Daemon) -> int:
    with sodad.store.read() as session:
        return session.scalar(select(func.count()).select_from(StartForecastRow)) or 0


def told(sodad: Daemon, job_id: int) -> ExpectedStart | None:
    with sodad.store.read() as session:
        return expected_start_of(session, sodad.job(job_id).id)


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_waiting_job_is_told_when_by_what_its_like_ran(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path, mode: str
) -> None:
    past_job(fresh_store, "alice", 600.0, 200, 100)
    running = slurm.submit(1, gpus=4, checkpoint=None, work_s=900.0, user="alice")
    sodad = daemon(mode=mode)
    sodad.follow(20)
    slurm.submit(2, gpus=4, work_s=60.0, user="bob")
    sodad.follow(90)
    row = told(sodad, 2)
    assert row is not None
    assert row.low_s
    assert row.median_s
    assert row.high_s
    start_s = running.start_s
    # A tenth of its like is expected to end before some 250 s; what is left until then is divided by e at first.
    assert start_s + 120 < row.low_s <= row.median_s <= row.high_s
    assert start_s + 600 < row.median_s < start_s + 1800, "not the hour that its limit allows"


def test_what_came_of_a_forecast_is_kept_and_counted(slurm: FakeSlurm, daemon: Start, fresh_store: Path) -> None:
    past_job(fresh_store, "alice", 300.0, 200, 100)
    slurm.submit(1, gpus=4, checkpoint=None, work_s=300.0, user="alice")
    sodad = daemon()
    sodad.follow(20)
    second = slurm.submit(2, gpus=4, work_s=60.0, user="bob")
    sodad.follow(500)
    assert second.runs
    with sodad.store.read() as session:
        (outcome,) = newest_outcomes(session)
        assert score_of_intervals(session).forecasts == 1
        view = job_detail_view(session, HEAD, 2)
        overview = status_view(session, HEAD, cycles=0, since_s=0.0)
    assert outcome.waited_s == pytest.approx(300.0, abs=120.0)
    assert outcome.side == 0
    assert told(sodad, 2) is None, "it started"
    assert view.start_score is None
    assert overview.start_score is not None
    assert overview.start_score.held_ratio == 1.0
    assert decode_view(StatusView, encode_view(overview)).start_score == overview.start_score
    assert decode_view(JobDetailView, encode_view(view)).expected_start is None


def test_a_job_that_is_cancelled_while_it_waits_tells_nothing(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, checkpoint=None, work_s=600.0)
    sodad = daemon()
    sodad.follow(20)
    slurm.submit(2, gpus=4, work_s=60.0)
    sodad.follow(80)
    assert kept(sodad) == 1
    slurm.all[2].state, slurm.all[2].end_s = "CANCELLED", slurm.clock.now_s()
    sodad.follow(160)
    assert kept(sodad) == 0
    assert told(sodad, 2) is None


def test_one_owner_does_not_decide_how_right_forecasts_seem(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_forecasts, "MAX_OPEN_PER_OWNER", 3)
    slurm.submit(1, gpus=4, checkpoint=None, work_s=6000.0)
    sodad = daemon()
    sodad.follow(20)
    for job_id in range(2, 12):
        slurm.submit(job_id, gpus=4, work_s=60.0, user="flood")
    slurm.submit(12, gpus=4, work_s=60.0, user="bob")
    sodad.follow(100)
    assert kept(sodad) == 4


def test_a_forecast_is_kept_once_an_hour_and_a_new_sodad_goes_on(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, checkpoint=None, work_s=90_000.0)
    sodad = daemon()
    sodad.follow(20)
    slurm.submit(2, gpus=4, work_s=60.0)
    sodad.follow(1800, every_s=30.0)
    assert kept(sodad) == 1
    sodad = daemon()
    sodad.follow(1200, every_s=30.0)
    assert kept(sodad) == 1
    sodad.follow(1500, every_s=30.0)
    assert kept(sodad) == 2


def test_an_error_costs_no_cycle(slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_forecasts, "ForecastInProgress", lambda *_: 1 / 0)
    first = slurm.submit(1, gpus=4, checkpoint=None, work_s=100.0)
    slurm.submit(2, gpus=4, work_s=60.0)
    sodad = daemon()
    with sodad.store.write() as session:
        session.execute(text("DROP TABLE expected_start"))
    sodad.follow(200)
    assert first.state == "COMPLETED"
    assert not sodad.cycles.last_error

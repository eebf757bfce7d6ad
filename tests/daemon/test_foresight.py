"""Run times in whole cycles: learned from jobs that end, told to the policy, written down, and never in the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select, text

from slurm_soda.daemon.api.view_json import decode_view, encode_view
from slurm_soda.daemon.api.views import JobDetailView, ViewHeader
from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.learning import job_kinds, run_time_predictions
from slurm_soda.daemon.learning.ended_jobs import RECORDED_AFTER_S
from slurm_soda.daemon.learning.job_kinds import gpu_type_of
from slurm_soda.daemon.learning.run_time_predictions import RunTimePredictor
from slurm_soda.daemon.store import kind_profiles
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob, ProfileValueRow, RunTimePrediction
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun
from slurm_soda.policies.run_times.prediction_sources import RunTimeSource
from slurm_soda.policies.run_times.remaining_time_curve import MIDDLES_S
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

Start = Callable[..., Daemon]
SJF = {"policy": {"name": "sjf"}}


def past_job(
    sodad: Path, user: str, run_s: float, jobs: int, first_id: int, limit_s: float | None = None, end_s: float = 1000.0
) -> None:
    """Jobs of long ago, in the store."""
    store = open_store(f"sqlite:///{sodad}/soda.db")
    with store.write() as session:
        for job_id in range(first_id, first_id + jobs):
            job = Job(
                job_id=job_id, submit_s=1.0, user=user, partition="main", name="job", state="COMPLETED", gpus=4,
                end_s=end_s, accounted=True, time_limit_s=limit_s,
            )  # fmt: skip
            session.add(job)
            session.flush()
            session.add(JobRun(job_pk=job.id, restart=0, start_s=end_s - run_s, end_s=end_s, gpus=4))
    store.close()


def told(sodad: Daemon, job_id: int) -> RunTimePrediction:
    with sodad.store.read() as session:
        row = session.get(RunTimePrediction, sodad.job(job_id).id)
    assert row is not None
    return row


def test_a_policy_by_run_times_starts_whom_history_says_is_short(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path
) -> None:
    past_job(fresh_store, "longsome", 3000.0, 20, 100)
    past_job(fresh_store, "swift", 30.0, 20, 200)
    slurm.submit(1, gpus=4, work_s=60.0)
    slurm.tick()
    sodad = daemon(**SJF)
    sodad.follow(10)
    slow = slurm.submit(2, gpus=4, work_s=100.0, user="longsome")
    fast = slurm.submit(3, gpus=4, work_s=30.0, user="swift")
    sodad.complete(300)
    assert fast.runs[0][0] < slow.runs[0][0]
    row = told(sodad, 3)
    assert (row.predicted_by, row.jobs) == (RunTimeSource.HISTORY, 20)
    assert row.run_s == pytest.approx(30.0, rel=0.3)
    assert "swift" in row.basis


def test_without_any_past_the_time_limit_is_told_and_the_end_is_noted(slurm: FakeSlurm, daemon: Start) -> None:
    job = slurm.submit(1, gpus=1, work_s=100.0)
    sodad = daemon(**SJF)
    sodad.follow(100 + 2 * RECORDED_AFTER_S, every_s=2.0)
    assert job.state == "COMPLETED"
    row = told(sodad, 1)
    assert (row.predicted_by, row.run_s) == (RunTimeSource.LIMIT, 3600.0)
    assert row.actual_s == pytest.approx(100.0, abs=3.0)


def test_an_ended_job_teaches_its_owners_next_one_and_once_only(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=1, work_s=100.0)
    sodad = daemon(**SJF)
    sodad.follow(104, every_s=2.0)
    learner = sodad.cycles._observer.run_time_predictor.forecast.learner
    assert learner.learnt == 1, "whoever decides what comes next on its GPU knows"
    sodad.follow(2 * RECORDED_AFTER_S, every_s=2.0)
    assert learner.learnt == 1, "what it showed is recorded a minute later"
    slurm.submit(2, gpus=1, work_s=50.0)
    sodad.follow(40, every_s=2.0)
    assert told(sodad, 2).predicted_by == RunTimeSource.HISTORY
    assert learner.learnt == 1
    again = daemon(**SJF)
    again.run()
    assert again.cycles._observer.run_time_predictor.forecast.learner.learnt == 1, (
        "the next daemon learns it from the store"
    )


@pytest.mark.parametrize("ended_ago_s", [10.0, 1800.0, 10_000.0])
def test_the_first_decision_of_a_daemon_knows_the_past(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path, ended_ago_s: float
) -> None:
    end_s = slurm.clock.now_s() - ended_ago_s
    past_job(fresh_store, "longsome", 3000.0, 20, 100, end_s=end_s)
    past_job(fresh_store, "swift", 30.0, 20, 200, end_s=end_s)
    slow = slurm.submit(1, gpus=4, work_s=100.0, user="longsome")
    fast = slurm.submit(2, gpus=4, work_s=30.0, user="swift")
    sodad = daemon(**SJF)
    sodad.run()
    predictor = sodad.cycles._observer.run_time_predictor
    assert predictor.forecast.learner.learnt == 40
    sodad.complete(300)
    assert fast.runs[0][0] < slow.runs[0][0]
    assert predictor.forecast.learner.learnt == 42, "each once, whatever the store and Slurm both tell"


def test_what_failed_once_is_recalled_in_the_next_cycle(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past_job(fresh_store, "alice", 30.0, 20, 100)
    slurm.submit(1, gpus=4, work_s=100.0)
    sodad = daemon(**SJF)
    with monkeypatch.context() as patch:
        patch.setattr(kind_profiles, "past_run_times", lambda *told: 1 / 0)
        assert sodad.run().error == ""
    learner = sodad.cycles._observer.run_time_predictor.forecast.learner
    assert not learner.learnt
    sodad.run()
    assert learner.learnt == 20


def test_time_limits_tell_past_jobs_of_one_name_apart(slurm: FakeSlurm, daemon: Start, fresh_store: Path) -> None:
    past_job(fresh_store, "alice", 30.0, 20, 100, limit_s=600.0)
    past_job(fresh_store, "alice", 3000.0, 20, 200, limit_s=5400.0)
    past_job(fresh_store, "alice", 300.0, 20, 300)
    for job_id, limit_s in ((1, 600.0), (2, 5400.0), (3, math.inf), (4, 86_400.0)):
        slurm.submit(job_id, gpus=4, time_limit_s=limit_s)
    sodad = daemon(**SJF)
    sodad.follow(40, every_s=2.0)
    assert told(sodad, 1).run_s == pytest.approx(30.0, rel=0.5)
    assert told(sodad, 2).run_s == pytest.approx(3000.0, rel=0.5)
    assert (told(sodad, 2).jobs, told(sodad, 2).basis.rpartition(", ")[2]) == (20, "limited to 90 min")
    for job_id in (3, 4):  # without a limit, and with one that no job had
        assert told(sodad, job_id).run_s == pytest.approx(300.0, rel=0.5)
        assert (told(sodad, job_id).jobs, "limited" in told(sodad, job_id).basis) == (60, False)


@pytest.mark.parametrize("shares", [False, True])
def test_running_jobs_that_outlive_what_was_expected_teach_unless_they_share(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path, shares: bool
) -> None:
    past_job(fresh_store, "alice", 30.0, 10, 100)
    running = [slurm.submit(job_id, gpus=1, work_s=3000.0) for job_id in range(1, 5)]
    sodad = daemon(**SJF)
    sodad.follow(4, every_s=2.0)
    if shares:
        for job in sodad.cycles._state.job_cache.jobs.values():
            job.mark_shared()
    sodad.follow(400, every_s=20.0)
    assert {job.state for job in running} == {"RUNNING"}
    learner = sodad.cycles._observer.run_time_predictor.forecast.learner
    known = learner.known(job_kinds.traits_of_record(slurm.jobs()[0]))
    assert known.jobs == 10
    assert (float(known.probability[MIDDLES_S > 300.0].sum()) > 0.25) is not shares


@pytest.mark.parametrize("limit_s", [60.0, 5400.0, 7 * 86_400.0, math.inf])
def test_a_job_has_the_same_traits_listed_and_stored(slurm: FakeSlurm, daemon: Start, limit_s: float) -> None:
    slurm.submit(1, gpus=1, work_s=20.0, time_limit_s=limit_s, hints=Hints(model="resnet50"))
    sodad = daemon(**SJF)
    sodad.run()
    listed = job_kinds.traits_of_record(slurm.jobs()[0])
    assert listed == job_kinds.traits_of_job(sodad.job(1))
    assert listed.limit_s == limit_s
    sodad.follow(20 + 2 * RECORDED_AFTER_S, every_s=2.0)
    known = sodad.cycles._observer.run_time_predictor.forecast.learner.known(listed)
    assert (known.jobs, known.group.limit_s) == (1, None if math.isinf(limit_s) else limit_s)


def test_jobs_that_name_a_model_teach_their_kind(slurm: FakeSlurm, daemon: Start) -> None:
    hints = Hints(model="ResNet-50", batch_size=64, iterations=1000)
    job = slurm.submit(1, gpus=2, work_s=200.0, hints=hints)
    sodad = daemon(**SJF)
    sodad.follow(20, every_s=2.0)
    started_s = job.start_s
    with sodad.store.write() as session:
        session.add(
            JobNodeUsage(
                job_id=1, restart=0, node="n1", first_s=started_s, last_s=started_s + 190, samples=19, gpu_count=2,
                gpu_util_ratio=0.8, gpu_util_last_ratio=0.8, gpu_memory_peak_mib=16_000.0, cpu_s=1.0, memory_peak_mib=1.0,
            )
        )  # fmt: skip
    sodad.follow(200 + 2 * RECORDED_AFTER_S, every_s=2.0)
    with sodad.store.read() as session:
        assert len(session.scalars(select(ObservedJob)).all()) == 1
        values = {row.quantity: row for row in session.scalars(select(ProfileValueRow))}
    assert {row.model for row in values.values()} == {"resnet50"}
    assert values["iteration_s"].value == pytest.approx(0.2, rel=0.05)
    assert values["utilisation_ratio"].value == pytest.approx(0.8)
    assert values["memory_mib"].value == pytest.approx(8000.0)
    slurm.submit(2, gpus=2, work_s=100.0, hints=Hints(model="resnet50", batch_size=64, iterations=500))
    sodad.follow(40, every_s=2.0)
    row = told(sodad, 2)
    assert row.predicted_by == RunTimeSource.ITERATIONS
    assert row.run_s == pytest.approx(100.0, rel=0.1)


def test_what_fails_here_stops_no_cycle(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slurm.submit(1, gpus=1, work_s=30.0)
    sodad = daemon(**SJF)
    with sodad.store.write() as session:
        session.execute(text("DROP TABLE run_time_prediction"))
    monkeypatch.setattr(run_time_predictions, "traits_of_record", lambda record: 1 / 0)
    for _ in range(3):
        assert sodad.run().error == ""
        slurm.advance(31.0)
    assert slurm.all[1].state == "COMPLETED"


def test_what_is_left_falls_while_a_job_runs_and_stays_within_its_limit(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path
) -> None:
    past_job(fresh_store, "alice", 100_000.0, 30, 100)
    slurm.submit(1, gpus=4, work_s=3000.0)
    sodad = daemon(**SJF)
    sodad.follow(10)
    cycles = sodad.cycles
    left = []
    for _ in range(3):
        sodad.run()
        job = cycles._state.job_cache.jobs[1]
        expected = cycles._observer.run_time_predictor.run_time(job, slurm.clock.now_s())
        assert expected is not None
        left.append(expected.left.value)
        slurm.advance(100.0)
    assert 3000 < left[0] <= 3600.0
    assert left[0] - left[2] == pytest.approx(200.0, abs=1.0)


def test_many_jobs_are_told_of_little_by_little(fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_time_predictions, "MAX_PREDICTIONS_PER_STEP", 4)
    slurm = FakeSlurm(FakeClock())
    for job_id in range(1, 11):
        slurm.submit(job_id, gpus=1)
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    job_cache, ahead = JobCache(store), RunTimePredictor(store)

    def look() -> None:
        job_cache.observe(slurm.jobs(), slurm.clock.now_s())
        with store.write() as session:
            job_cache.save(session, slurm.clock.now_s())
        job_cache.saved()

    def told_after(predictor: RunTimePredictor, seconds: float) -> int:
        predictor.step(Instant(*[slurm.clock.now_s() + seconds] * 2), slurm.nodes(), job_cache)
        with store.read() as session:
            return len(session.scalars(select(RunTimePrediction)).all())

    look()
    assert [told_after(ahead, 100.0 * step) for step in range(4)] == [4, 8, 10, 10]
    slurm.submit(11, gpus=1)
    look()
    assert told_after(RunTimePredictor(store), 400.0) == 11, "the next daemon begins with who has not been told of"
    store.close()


def test_a_column_of_nobody_is_empty(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon(**SJF)
    assert sodad.run().error == ""
    assert math.isfinite(sodad.cycles._observer.run_time_predictor._next_s)


@pytest.mark.parametrize(
    ("types", "asked", "node_names", "expected"),
    [
        ({"n1": "a100", "n2": "a100"}, "", "", "a100"),
        ({"n1": "a100", "n2": "v100"}, "", "", ""),
        ({"n1": "a100", "n2": "v100"}, "", "n2", "v100"),
        ({"n1": "a100", "n2": "v100"}, "", "n[1-2]", ""),
        ({"n1": "a100"}, "v100", "", "v100"),
        ({}, "", "", ""),
    ],
)
def test_on_which_gpus_a_job_is_expected_to_run(
    types: dict[str, str], asked: str, node_names: str, expected: str
) -> None:
    assert gpu_type_of(record(gpu_type=asked, node_names=node_names), types) == expected


def test_what_is_told_travels_as_it_is() -> None:
    row = RunTimePrediction(
        job_pk=1, at_s=1.0, predicted_by="history", run_s=2.0, error_s=None, jobs=3, basis="named \udcff",
        curve=[[0.0, 1.0, 2.0]],
        actual_s=None,
    )  # fmt: skip
    story = JobDetailView(
        ViewHeader(None, daemon_alive=False, stall="", mode="observe", policy="fifo", parameters={}), None, run_time=row
    )
    there = decode_view(JobDetailView, encode_view(story)).run_time
    assert there is not None
    assert (there.basis, there.curve, there.error_s, there.jobs) == ("named \udcff", [[0.0, 1.0, 2.0]], None, 3)

"""Each job teaches its whole run time once, however it ends, and whoever sees that when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_soda.daemon.learning import ended_jobs
from slurm_soda.daemon.learning.run_time_predictions import RunTimePredictor
from slurm_soda.daemon.store import kind_profiles
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.run_times.learner import RunTimeLearner
from slurm_soda.slurm_ext.read.sacct import JobAccounting, RunAccounting
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.test_foresight import past_job, told

Start = Callable[..., Daemon]


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Owner and run time of each job that was learned from, in seconds."""
    seen: list[tuple[str, float]] = []
    learn = RunTimeLearner.learn

    def note(learner: RunTimeLearner, traits: SubmissionTraits, run_s: float) -> None:
        seen.append((traits.owner, run_s))
        learn(learner, traits, run_s)

    monkeypatch.setattr(RunTimeLearner, "learn", note)
    return seen


@pytest.mark.parametrize(("on_signal", "whole_s"), [("exit", 200.0), ("requeue", 200.0), ("finish", 80.0)])
def test_a_job_that_was_preempted_teaches_once_it_has_really_ended(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]], on_signal: str, whole_s: float
) -> None:
    """One that saves its state and exits has failed, as Slurm sees it, until sodad requeues it."""
    slurm.submit(1, gpus=4, work_s=200.0, checkpoint="USR1", on_signal=on_signal, grace_s=10)
    sodad = daemon()
    sodad.follow(80, every_s=2.0)
    slurm.submit(2, gpus=4, work_s=30.0, user="bob")
    sodad.follow(250)
    assert len(taught) == 2
    assert dict(taught) == pytest.approx({"alice": whole_s, "bob": 30.0}, abs=4.0)


def test_a_job_that_was_requeued_after_its_end_teaches_its_whole_run_time_too(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]]
) -> None:
    job = slurm.submit(1, gpus=4, work_s=20.0)
    sodad = daemon()
    sodad.follow(30)
    job.work_s += 60.0
    slurm.requeue(1, ended=True)
    sodad.follow(250)
    assert [round(run_s, -1) for _, run_s in taught] == [20.0, 80.0]


@pytest.mark.parametrize("ended_ago_s", [100.0, 1800.0, 10_000.0])
def test_what_could_not_be_recalled_at_first_teaches_once(
    slurm: FakeSlurm,
    daemon: Start,
    fresh_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    taught: list[tuple[str, float]],
    ended_ago_s: float,
) -> None:
    past_job(fresh_store, "alice", 30.0, 20, 100, end_s=slurm.clock.now_s() - ended_ago_s)
    sodad = daemon()
    with monkeypatch.context() as patch:
        patch.setattr(kind_profiles, "past_run_times", lambda *told: 1 / 0)
        assert sodad.run().error == ""
    assert not taught
    sodad.follow(100, every_s=2.0)
    assert len(taught) == 20


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("away_s", [200.0, 1.5 * ended_jobs.LATE_RECORDS_S, 3 * ended_jobs.LATE_RECORDS_S])
def test_whoever_ended_while_sodad_was_down_teaches_once_for_as_long_as_slurm_lists_it(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]], away_s: float, *, restarts: bool
) -> None:
    slurm.submit(1, gpus=1, work_s=100.0)
    first = daemon()
    if restarts:
        first.follow(10)
    slurm.advance(away_s)
    slurm.submit(2, gpus=1, work_s=20.0, user="bob")
    (daemon() if restarts else first).follow(100, every_s=2.0)
    assert len(taught) == 2
    assert dict(taught) == pytest.approx({"alice": 100.0, "bob": 20.0}, abs=4.0)
    taught.clear()
    daemon().follow(100, every_s=2.0)
    assert sorted(owner for owner, _ in taught) == ["alice", "bob"]


def leaving(slurm: FakeSlurm, daemon: Start) -> Daemon:
    """A daemon that has seen a job fail by our signal, which it requeues."""
    slurm.submit(1, gpus=4, work_s=200.0, checkpoint="USR1", on_signal="exit", grace_s=10)
    sodad = daemon()
    sodad.follow(80, every_s=2.0)
    slurm.submit(2, gpus=4, work_s=30.0, user="bob")
    return sodad


def test_a_run_that_a_preemption_ended_is_no_past_of_a_sodad_that_starts_before_the_job_is_back(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]]
) -> None:
    sodad = leaving(slurm, daemon)
    while sodad.job(1).end_s is None:
        slurm.advance(1.0)
        sodad.run()
    daemon().follow(250)
    assert len(taught) == 2
    assert dict(taught) == pytest.approx({"alice": 200.0, "bob": 30.0}, abs=4.0)


def test_a_job_that_cannot_be_requeued_for_minutes_does_not_teach_before_it_is(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]]
) -> None:
    sodad = leaving(slurm, daemon)
    slurm.hanging.add("requeue")
    sodad.follow(200)
    assert slurm.all[1].state == "FAILED"
    slurm.hanging.clear()
    sodad.follow(600)
    print(taught)
    assert sorted(owner for owner, _ in taught) == ["alice", "bob"]
    assert dict(taught) == pytest.approx({"alice": 200.0, "bob": 30.0}, abs=4.0)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_whose_end_accounting_tells_hours_later_teaches_nevertheless(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]], *, restarts: bool
) -> None:
    answers: list[JobAccounting] = []
    slurm.accounting = lambda job_ids: [answer for answer in answers if answer.job_id in job_ids]
    slurm.submit(1, gpus=1, work_s=100.0)
    sodad = daemon(slurm={"accounting": True})
    sodad.follow(20)
    job = slurm.all.pop(1)
    end_s = job.start_s + 100.0
    run = RunAccounting(job.start_s, end_s, "COMPLETED", "0:0", 1.0, 1.0, gpus=1, cpus=1, nodes=1, node_names="n1")
    sodad.follow(3 * ended_jobs.LATE_RECORDS_S, every_s=30.0)
    if restarts:
        sodad = daemon(slurm={"accounting": True})
        sodad.follow(100, every_s=5.0)
    assert not taught
    answers.append(JobAccounting(1, "alice", job.submit_s, "COMPLETED", "0:0", (run,)))
    sodad.follow(300, every_s=5.0)
    assert len(taught) == 1
    assert dict(taught) == pytest.approx({"alice": 100.0}, abs=2.0)


@pytest.mark.parametrize("by_s", [-86_400.0, 86_400.0])
def test_a_job_teaches_once_although_the_clock_is_set_and_set_back(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]], by_s: float
) -> None:
    slurm.submit(1, gpus=1, work_s=100.0)
    sodad = daemon()
    sodad.follow(120)
    del slurm.all[1]
    sodad.follow(100)
    for set_by_s in (by_s, 0.0):
        slurm.clock.set_by_s = set_by_s
        sodad.follow(100)
    assert len(taught) == 1


def test_what_jobs_showed_is_written_down_although_the_database_fails_once(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.submit(1, gpus=1, work_s=100.0)
    sodad = daemon()
    sodad.follow(120)
    assert told(sodad, 1).actual_s is None
    failures = []

    def fail(*_: object) -> None:
        failures.append(1)
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(RunTimePredictor, "_tell", fail)
        sodad.follow(80)
    assert failures
    sodad.follow(80)
    assert told(sodad, 1).actual_s == pytest.approx(100.0, abs=2.0)
    assert len(taught) == 1


def test_a_job_that_ended_hours_ago_and_is_listed_once_teaches(
    slurm: FakeSlurm, daemon: Start, taught: list[tuple[str, float]]
) -> None:
    slurm.submit(1, gpus=1, work_s=100.0)
    slurm.advance(2 * ended_jobs.LATE_RECORDS_S, step_s=10.0)
    sodad = daemon()
    sodad.run()
    del slurm.all[1]
    sodad.follow(100)
    assert len(taught) == 1
    assert dict(taught) == pytest.approx({"alice": 100.0}, abs=2.0)

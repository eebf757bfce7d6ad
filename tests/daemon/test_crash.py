"""kill -9 at every point of every cycle: no requeue lost or doubled, no gap in the audit trail."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.preemption.state_machine import NODES_REPORT_WITHIN_S
from tests.daemon.fake_slurm import FakeClock, FakeJob, FakeSlurm
from tests.daemon.harness import Daemon, KilledError, Killer, settings


def scenario() -> FakeSlurm:
    """Two long jobs with different checkpoint signals that must make way for short ones."""
    slurm = FakeSlurm(FakeClock())
    slurm.submit(1, gpus=2, work_s=90.0)
    slurm.submit(2, gpus=2, work_s=90.0, checkpoint="USR1", on_signal="exit", grace_s=5)
    slurm.tick()
    slurm.advance(70)
    slurm.submit(3, gpus=4, work_s=4.0)
    slurm.submit(4, gpus=1, work_s=4.0, checkpoint=None)
    return slurm


def play(slurm: FakeSlurm, path: Path, kill_at: int) -> tuple[Daemon, int]:
    """Run the scenario to its end with one death on the way; gives the last life and the points that the first passed."""
    killer = Killer(kill_at)
    sodad = Daemon(slurm, path, settings(), killer)
    passed = 0
    for _ in range(400):
        try:
            sodad.run()
        except KilledError:
            passed = killer.passed
            slurm.advance(3)
            sodad = Daemon(slurm, path, settings())
        slurm.advance(1)
        if all(job.state == "COMPLETED" for job in slurm.all.values()):
            break
    sodad.run()
    sodad.run()
    return sodad, passed or killer.passed


def check(slurm: FakeSlurm, sodad: Daemon) -> None:
    for job in slurm.all.values():
        assert job.state == "COMPLETED", job
        check_job(job, sodad)
    assert {p.phase for p in sodad.preemptions()} <= {"done", "lost"}
    assert {action.state for action in sodad.actions()} <= {"done", "failed", "void"}


def check_job(job: FakeJob, sodad: Daemon) -> None:
    done = [p for p in sodad.preemptions() if p.job_id == job.job_id and p.phase == "done"]
    assert len(job.requeued_s) == len(done), "every requeue belongs to exactly one preemption"
    assert len({p.restart for p in done}) == len(done), "no run is preempted twice"
    requeues = [a for a in sodad.actions("requeue") if a.job_id == job.job_id and a.state == "done"]
    assert len(requeues) == len(job.requeued_s), "the trail names every requeue"
    for action in requeues:
        assert action.preemption_id
    assert sodad.job(job.job_id).preemptions == len(done)
    assert [(r.start_s, r.end_s) for r in sodad.runs(job.job_id)] == [pytest.approx(run, abs=1.0) for run in job.runs]


def test_without_a_kill(fresh_store: Path) -> None:
    slurm = scenario()
    sodad, passed = play(slurm, fresh_store, kill_at=-1)
    check(slurm, sodad)
    assert len(slurm.all[1].requeued_s) == len(slurm.all[2].requeued_s) == 1
    assert passed > 100


@pytest.mark.sample(5)
@pytest.mark.parametrize("kill_at", range(1, 101))
def test_a_kill_at_every_point(fresh_store: Path, kill_at: int) -> None:
    slurm = scenario()
    sodad, passed = play(slurm, fresh_store, kill_at)
    assert passed == kill_at
    check(slurm, sodad)


def signalled(path: Path) -> tuple[FakeSlurm, FakeJob]:
    """A job that sodad asked for its checkpoint, before it died; it ignored that."""
    slurm = FakeSlurm(FakeClock())
    leaving = slurm.submit(1, gpus=4, work_s=1e6, checkpoint="USR1", on_signal="ignore", grace_s=30)
    slurm.tick()
    slurm.advance(150)
    slurm.submit(2, gpus=4, work_s=20.0)
    sodad = Daemon(slurm, path, settings())
    while not leaving.signals:
        sodad.follow(1)
    leaving.on_signal = "exit"
    return slurm, leaving


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_job_that_left_while_sodad_was_dead_is_requeued_by_the_next_sodad(fresh_store: Path, mode: str) -> None:
    slurm, leaving = signalled(fresh_store)
    slurm.signal(1, "USR1")  # by now it has saved its state
    slurm.advance(60)
    assert leaving.state == "FAILED"
    Daemon(slurm, fresh_store, settings(mode=mode)).run()
    assert (leaving.state, leaving.restarts) == ("PENDING", 1)


def test_a_job_that_ran_on_and_failed_hours_later_is_left_to_its_owner(fresh_store: Path) -> None:
    slurm, leaving = signalled(fresh_store)
    slurm.clock.at_s += 7200
    slurm.signal(1, "USR1")  # it fails
    slurm.advance(5)
    sodad = Daemon(slurm, fresh_store, settings())
    sodad.run()
    assert (leaving.state, leaving.restarts) == ("FAILED", 0)
    assert [entry.phase for entry in sodad.preemptions()] == ["lost"]


def test_a_requeue_that_slurmctld_forgot_is_sent_again(fresh_store: Path) -> None:
    slurm = scenario()
    slurm.forget_requeues = 1
    sodad, _ = play(slurm, fresh_store, kill_at=-1)
    assert all(job.state == "COMPLETED" for job in slurm.all.values())
    assert len(slurm.all[1].requeued_s) == 1
    assert {p.phase for p in sodad.preemptions()} == {"done"}
    forgotten, again = (action for action in sodad.actions("requeue") if action.job_id == 1)
    assert again.created_s - forgotten.created_s >= NODES_REPORT_WITHIN_S, "the nodes may still tell that it has left"


def test_a_requeue_that_came_too_late_is_not_recorded_as_done(fresh_store: Path) -> None:
    slurm = scenario()
    slurm.end_before_requeues = 1
    sodad, _ = play(slurm, fresh_store, kill_at=-1)
    check(slurm, sodad)
    late = next(action for action in sodad.actions("requeue") if action.job_id == 1)
    assert (late.state, late.error) == ("void", "the job had ended by itself")


def test_a_released_job_is_watched_without_hurry(fresh_store: Path) -> None:
    slurm = scenario()
    sodad = Daemon(slurm, fresh_store, settings())
    while not sodad.actions("start-now"):
        sodad.follow(1)
    sodad.follow(1)
    due_s = sodad.run().next_s
    assert [(p.phase, slurm.all[p.job_id].state) for p in sodad.preemptions()] == [("released", "PENDING")] * 2
    assert due_s > slurm.clock.at_s + settings().cycle.busy_interval_s


def test_a_job_that_left_at_once_is_not_started_in_the_same_second(fresh_store: Path) -> None:
    slurm = FakeSlurm(FakeClock(), completing_s=0.1)
    slurm.submit(1, gpus=4, work_s=90.0)
    slurm.tick()
    slurm.advance(70)
    sodad = Daemon(slurm, fresh_store, settings())
    slurm.submit(2, gpus=4, work_s=0.3)
    sodad.follow(30, every_s=0.1)
    assert len(slurm.all[1].requeued_s) == 1
    assert {job.state for job in slurm.all.values()} == {"COMPLETED"}

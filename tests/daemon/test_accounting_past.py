"""What accounting knows of the time before sodad teaches it, once, and never in the way of a cycle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.learning.accounting_past import AccountingPast, PastRunsQuery
from slurm_soda.daemon.learning.run_time_predictions import RunTimePredictor
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.tables.scheduling import JobRun
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.past_jobs import PastJob, PastRun
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.test_foresight import past_job

Start = Callable[..., Daemon]
DAY_S = 86_400.0
NOW_S = 100 * DAY_S


def run(
    days_ago: float, owner: str = "alice", run_s: float = 60.0, job_id: int = 0, state: str = "COMPLETED"
) -> PastRun:
    end_s = NOW_S - days_ago * DAY_S
    return PastRun(job_id or int(1000 * days_ago), end_s - run_s, end_s, state, owner, "main", 3600.0, 4, False)


class Accounting:
    """Runs that were there at some time of the days asked for."""

    def __init__(self, *runs: PastRun, fails_from: int = 1000) -> None:
        self._runs, self._fails_from = runs, fails_from
        self.asked: list[tuple[int, int]] = []

    def __call__(self, from_days: int, to_days: int) -> Sequence[PastRun]:
        self.asked.append((from_days, to_days))
        if from_days >= self._fails_from:
            raise SlurmReplyError("sacct's list was cut short")
        first_s, last_s = NOW_S - from_days * DAY_S, NOW_S - to_days * DAY_S
        return [run for run in self._runs if run.end_s >= first_s and run.start_s <= last_s]


def answer(
    accounting: PastRunsQuery, days: int, *, most: int = 100, each: int = 100, before_days: float = 0.0
) -> Sequence[PastJob]:
    past = AccountingPast(accounting, days, pauses_s=())
    past.begin(NOW_S, NOW_S - before_days * DAY_S, most, each)
    assert past.wait(10.0)
    return past.take()


def test_older_days_are_asked_for_until_there_are_enough_jobs() -> None:
    accounting = Accounting(run(0.5), run(1.5), run(5), run(30))
    assert [job.end_s for job in answer(accounting, 20, most=3)] == [NOW_S - days * DAY_S for days in (5, 1.5, 0.5)]
    assert accounting.asked == [(1, 0), (3, 1), (7, 3)]
    accounting = Accounting(run(0.5), run(1.5), run(5), run(30))
    assert len(answer(accounting, 20)) == 3
    assert accounting.asked[-2:] == [(15, 7), (20, 15)]


def test_a_job_that_ran_across_the_bound_of_two_answers_is_one_job_with_all_of_its_runs() -> None:
    requeued, last = run(1.02, run_s=2 * DAY_S, job_id=7, state="REQUEUED"), run(0.5, run_s=0.4 * DAY_S, job_id=7)
    (job,) = answer(Accounting(requeued, last), 8)
    assert job.run_s == pytest.approx(2.4 * DAY_S)


def test_one_owner_does_not_hide_the_others() -> None:
    many = [run(0.001 * number, "bob", job_id=number) for number in range(1, 50)]
    found = [job.owner for job in answer(Accounting(*many, run(1.0), run(3.0)), 4, most=10, each=5)]
    assert (found.count("bob"), found.count("alice")) == (5, 2)
    found = [job.owner for job in answer(Accounting(*many, run(0.9), run(0.95)), 4, most=6, each=100)]
    assert (found.count("bob"), found.count("alice")) == (4, 2)


def test_what_the_store_has_seen_is_not_asked_for() -> None:
    accounting = Accounting(run(0.5), run(2.2), run(3))
    (job,) = answer(accounting, 8, before_days=2.5)
    assert job.end_s == NOW_S - 3 * DAY_S
    assert accounting.asked[0] == (3, 2)
    accounting = Accounting()
    assert not answer(accounting, 8, before_days=9)
    assert not accounting.asked


@pytest.mark.parametrize("error", [SlurmReplyError("cut"), RuntimeError("not foreseen"), MemoryError()])
def test_what_came_before_an_error_counts_and_nothing_is_asked_twice(error: Exception) -> None:
    accounting = Accounting(run(0.5), run(1.5), run(3))

    def fails(from_days: int, to_days: int) -> Sequence[PastRun]:
        if from_days > 3:
            raise error
        return accounting(from_days, to_days)

    past = AccountingPast(fails, 64)
    for _ in range(2):
        past.begin(NOW_S, NOW_S, 100, 100)
        assert past.wait(10.0)
    assert len(past.take()) == 3
    assert not past.take()
    assert accounting.asked == [(1, 0), (3, 1)]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SlurmReplyError("sacct's list was cut short"), 'past-jobs-not-read error="sacct\'s list was cut short"'),
        (MemoryError(), 'past-jobs-not-read error="MemoryError: "'),
    ],
)
def test_every_error_has_a_name_in_the_log(error: Exception, said: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_from: int, _to: int) -> Sequence[PastRun]:
        raise error

    assert not answer(fails, 64)
    assert said in caplog.messages


def test_accounting_that_starts_later_is_asked_again_and_one_that_has_answered_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    accounting = Accounting(run(0.5), run(1.5), fails_from=3)
    asked = list[int]()

    def starts_late(from_days: int, to_days: int) -> Sequence[PastRun]:
        asked.append(from_days)
        if len(asked) < 3:
            raise SlurmReplyError("connection refused")
        return accounting(from_days, to_days)

    past = AccountingPast(starts_late, 64, pauses_s=(0.01, 0.02, 0.03))
    past.begin(NOW_S, NOW_S, 100, 100)
    assert past.wait(10.0)
    assert len(past.take()) == 1
    assert asked == [1, 1, 1, 3]
    refused = 'past-jobs-not-read error="connection refused"'
    cut = 'past-jobs-not-read error="sacct\'s list was cut short"'
    assert caplog.messages[:3] == [f"{refused} again_in_s=0.010", f"{refused} again_in_s=0.020", cut]


def test_a_daemon_that_ends_waits_for_no_other_answer() -> None:
    accounting = Accounting(fails_from=0)
    past = AccountingPast(accounting, 64, pauses_s=(3600.0,))
    past.begin(NOW_S, NOW_S, 100, 100)
    past.close()
    assert past.wait(10.0)
    assert len(accounting.asked) <= 1


def test_nobody_is_asked_where_nothing_is_wanted() -> None:
    accounting = Accounting(run(0.5))
    for days, most in ((0, 100), (64, 0), (64, -5)):
        past = AccountingPast(accounting, days)
        past.begin(NOW_S, NOW_S, most, 100)
        assert not past.wait(0.05)
        assert not past.take()
    assert not accounting.asked
    AccountingPast(None, 64).begin(NOW_S, NOW_S, 100, 100)


def test_a_site_that_closes_asks_no_further() -> None:
    accounting = Accounting()

    def slow(from_days: int, to_days: int) -> Sequence[PastRun]:
        time.sleep(0.2)
        return accounting(from_days, to_days)

    past = AccountingPast(slow, 64)
    past.begin(NOW_S, NOW_S, 100, 100)
    past.close()
    assert past.wait(10.0)
    assert len(accounting.asked) <= 1


def begin(sodad: Daemon, runs: Sequence[PastRun]) -> AccountingPast:
    past = AccountingPast(lambda _from, _to: runs, 1_000_000)
    sodad.cycles._observer.run_time_predictor.past = past
    return past


def learned(sodad: Daemon) -> int:
    return sodad.cycles._observer.run_time_predictor.forecast.learner.learnt


def expected_s(sodad: Daemon, slurm: FakeSlurm, job_id: int) -> float:
    found = sodad.cycles._observer.run_time_predictor.run_time(
        sodad.cycles._state.job_cache.jobs[job_id], slurm.clock.now_s()
    )
    assert found is not None
    return found.left.value


def past_runs(count: int, owners: Sequence[str], run_s: float, end_s: float = 900.0) -> list[PastRun]:
    return [
        PastRun(1000 + at, end_s - run_s, end_s, "COMPLETED", owners[at % len(owners)], "main", 7200.0, 4, False)
        for at in range(count)
    ]


def test_a_new_site_knows_its_users_and_the_store_has_the_last_word(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path
) -> None:
    past_job(fresh_store, "bob", 2000.0, 20, 100)
    sodad = daemon(policy={"name": "sjf"})
    late = past_runs(1, ["alice"], 3000.0, end_s=1000.0)  # ended with the first of the store
    past = begin(sodad, [*past_runs(40, ["alice", "bob"], 60.0), *late])
    slurm.submit(1, gpus=4, work_s=3000.0)
    assert sodad.run().error == ""
    assert past.wait(10.0)
    slurm.advance(30.0)
    assert sodad.run().error == ""
    assert learned(sodad) == 60, "40 of accounting, 20 of the store"
    slurm.submit(3, gpus=4, work_s=100.0, user="alice")
    slurm.submit(4, gpus=4, work_s=100.0, user="bob")
    assert sodad.run().error == ""
    assert expected_s(sodad, slurm, 3) < 120
    assert expected_s(sodad, slurm, 4) > 1000


def test_a_job_that_was_requeued_long_before_sodad_hides_nothing(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path
) -> None:
    """Its first run is in the store, too, as accounting tells of all of its runs."""
    past_job(fresh_store, "bob", 2000.0, 1, 100)
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    with store.write() as session:
        session.add(JobRun(job_pk=1, restart=1, start_s=10.0, end_s=20.0, gpus=4))
    store.close()
    sodad = daemon(policy={"name": "sjf"})
    past = begin(sodad, past_runs(40, ["alice"], 60.0))
    slurm.submit(1, gpus=4, work_s=3000.0)
    for _ in range(2):
        assert sodad.run().error == ""
        assert past.wait(10.0)
        slurm.advance(5.0)
    assert learned(sodad) == 41


def test_a_job_that_sodad_watches_teaches_at_its_end_alone(slurm: FakeSlurm, daemon: Start) -> None:
    """Accounting knows of it as well, as it ends between the questions."""
    sodad = daemon(policy={"name": "sjf"})
    job = slurm.submit(1, gpus=4, work_s=20.0)
    past = begin(sodad, [PastRun(1, 10.0, 11.0, "COMPLETED", job.user, "main", 3600.0, 4, False)])
    assert sodad.run().error == ""
    assert past.wait(10.0)
    sodad.complete(200)
    sodad.run()
    assert learned(sodad) == 1


def test_a_prediction_that_stood_before_the_answer_does_not_stand_after_it(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_s: list[float] = []
    fill = RunTimePredictor.fill

    def seen(*arguments: Any) -> ClusterSnapshot:
        found = fill(*arguments)
        left_s.extend(found.jobs.remaining_s.tolist())
        return found

    monkeypatch.setattr(RunTimePredictor, "fill", seen)
    sodad = daemon(policy={"name": "sjf"})
    past = begin(sodad, past_runs(100, ["alice"], 600.0))
    slurm.submit(1, gpus=4, work_s=3000.0, user="alice")
    slurm.tick()
    for _ in range(2):
        assert sodad.run().error == ""
        assert past.wait(10.0)
        slurm.advance(10.0)
    assert left_s[0] > 2000
    assert 500 < left_s[-1] < 700


def test_a_cycle_does_not_fail_when_accounting_does(slurm: FakeSlurm, daemon: Start) -> None:
    def fails(_from: int, _to: int) -> Sequence[PastRun]:
        raise RuntimeError("not foreseen")

    sodad = daemon(policy={"name": "sjf"})
    predictor = sodad.cycles._observer.run_time_predictor
    predictor.past = AccountingPast(fails, 1)
    slurm.submit(1, gpus=4, work_s=10.0)
    for _ in range(4):
        assert sodad.run().error == ""
        slurm.advance(5.0)
    assert not predictor.past.take()

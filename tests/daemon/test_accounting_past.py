"""What accounting knows of the time before sodad teaches it, once, and never in the way of a cycle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slurm_soda.daemon.learning.accounting_past import AccountingPast
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.past_jobs import PastJob
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.test_foresight import past_job

Start = Callable[..., Daemon]


class Accounting:
    """Jobs by the day on which they ended, counted back from day 100."""

    def __init__(self, *jobs: PastJob, fails_from: int = 1000) -> None:
        self._jobs, self._fails_from = jobs, fails_from
        self.asked: list[tuple[int, int]] = []

    def __call__(self, from_days: int, to_days: int) -> Sequence[PastJob]:
        self.asked.append((from_days, to_days))
        if from_days >= self._fails_from:
            raise SlurmReplyError("sacct's list was cut short")
        return [job for job in self._jobs if 100 - from_days <= job.end_s / 86_400 <= 100 - to_days]


def job(days_ago: float, owner: str = "alice", run_s: float = 60.0) -> PastJob:
    return PastJob(int(1000 * days_ago), owner, 4, "main", 3600.0, run_s, (100 - days_ago) * 86_400)


def answer(past: AccountingPast, *, most: int = 100, each: int = 100, before_s: float = 1e9) -> Sequence[PastJob]:
    past.begin(before_s, most, each)
    return wait_for(past)


def wait_for(past: AccountingPast) -> Sequence[PastJob]:
    assert past._answer is not None
    past._answer.result(10.0)
    return past.take()


def test_older_days_are_asked_for_until_there_are_enough_jobs() -> None:
    accounting = Accounting(job(0.5), job(1.5), job(5), job(30))
    assert [one.end_s for one in answer(AccountingPast(accounting, 20), most=3)] == [
        95 * 86_400.0, 98.5 * 86_400, 99.5 * 86_400,
    ]  # fmt: skip
    assert accounting.asked == [(1, 0), (2, 1), (4, 2), (8, 4)]
    accounting = Accounting(job(0.5), job(1.5), job(5), job(30))
    assert len(answer(AccountingPast(accounting, 20))) == 3
    assert accounting.asked[-2:] == [(16, 8), (20, 16)]


def test_one_owner_does_not_hide_the_others_and_nobody_counts_twice() -> None:
    many = [job(0.001 * number, "bob") for number in range(1, 50)]
    found = answer(AccountingPast(Accounting(*many, job(1.0), job(3.0)), 4), most=10, each=5)
    assert [one.owner for one in found].count("bob") == 5
    assert [one.owner for one in found].count("alice") == 2, (
        "who ended at the bound of two questions is in both answers"
    )


def test_what_the_store_has_seen_is_left_out() -> None:
    found = answer(AccountingPast(Accounting(job(0.5), job(3)), 8), before_s=98 * 86_400)
    assert [one.end_s for one in found] == [97 * 86_400]


def test_what_came_before_an_error_counts_and_nothing_is_asked_twice() -> None:
    accounting = Accounting(job(0.5), job(1.5), job(3), fails_from=4)
    past = AccountingPast(accounting, 64)
    assert len(answer(past)) == 2
    past.begin(1e9, 100, 100)
    assert not past.take()
    assert accounting.asked == [(1, 0), (2, 1), (4, 2)]
    past.close()


@pytest.mark.parametrize(("days", "most"), [(0, 100), (64, 0), (64, -5)])
def test_nobody_is_asked_where_nothing_is_wanted(days: int, most: int) -> None:
    accounting = Accounting(job(0.5))
    past = AccountingPast(accounting, days)
    past.begin(1e9, most, 100)
    assert not past.take()
    assert not accounting.asked
    AccountingPast(None, 64).begin(1e9, 100, 100)


def test_a_site_that_closes_asks_no_further() -> None:
    accounting = Accounting()

    def slow(from_days: int, to_days: int) -> Sequence[PastJob]:
        time.sleep(0.2)
        return accounting(from_days, to_days)

    past = AccountingPast(slow, 64)
    past.begin(1e9, 100, 100)
    past.close()
    time.sleep(0.5)
    assert len(accounting.asked) <= 1


def expected_s(sodad: Daemon, slurm: FakeSlurm, job_id: int) -> float:
    found = sodad.cycles._observer.run_time_predictor.run_time(
        sodad.cycles._state.job_cache.jobs[job_id], slurm.clock.now_s()
    )
    assert found is not None
    return found.left.value


def test_a_new_site_knows_its_users_and_the_store_has_the_last_word(
    slurm: FakeSlurm, daemon: Start, fresh_store: Path
) -> None:
    past_job(fresh_store, "bob", 2000.0, 20, 100)
    before = [PastJob(at, ("alice", "bob")[at % 2], 4, "main", 3600.0, 60.0, 900.0) for at in range(40)]
    accounting = [*before, PastJob(90, "alice", 4, "main", 3600.0, 3000.0, 1000.0)]  # as old as the store's first
    sodad = daemon(policy={"name": "sjf"})
    predictor = sodad.cycles._observer.run_time_predictor
    predictor.past = AccountingPast(lambda _from, _to: accounting, 1)
    for job_id, user in ((1, "alice"), (2, "bob")):
        slurm.submit(job_id, gpus=4, work_s=3000.0, user=user)
    assert sodad.run().error == ""
    wait_answer = predictor.past._answer
    assert wait_answer is not None
    wait_answer.result(10.0)
    slurm.advance(30.0)
    assert sodad.run().error == ""
    learned = predictor.forecast.learner.learnt
    assert learned == 60, "40 of accounting, 20 of the store"
    slurm.submit(3, gpus=4, work_s=100.0, user="alice")
    slurm.submit(4, gpus=4, work_s=100.0, user="bob")
    assert sodad.run().error == ""
    assert expected_s(sodad, slurm, 3) < 120
    assert expected_s(sodad, slurm, 4) > 1000


def test_a_cycle_does_not_fail_when_accounting_does(slurm: FakeSlurm, daemon: Start) -> None:
    def fails(_from: int, _to: int) -> Sequence[PastJob]:
        raise RuntimeError("not foreseen")

    sodad = daemon(policy={"name": "sjf"})
    predictor = sodad.cycles._observer.run_time_predictor
    predictor.past = AccountingPast(fails, 1)
    slurm.submit(1, gpus=4, work_s=10.0)
    for _ in range(4):
        assert sodad.run().error == ""
        slurm.advance(5.0)
    assert predictor.past.take() == ()

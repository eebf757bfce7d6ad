"""What looking at waiting jobs' requests costs: Slurm is asked little where it does not answer, the store once a cycle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import event

from slurm_soda.daemon.cpu_fit.question_turns import QuestionTurns
from slurm_soda.daemon.cycle.request_details import MAX_PAUSE_S, PAUSE_AFTER_TIMEOUT_S, RequestDetailReader
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.test_cores_starts import Start, fit, thought, wait


@pytest.fixture
def full(slurm: FakeSlurm) -> FakeSlurm:
    """All GPUs are taken, so that jobs wait."""
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    return slurm


@contextmanager
def questions(sodad: Daemon, table: str) -> Iterator[list[str]]:
    """Statements that read a table."""
    said: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT") and f"FROM {table}" in statement.replace("\n", " "):
            said.append(statement)

    event.listen(sodad.store.engine, "before_cursor_execute", hear)
    yield said
    event.remove(sodad.store.engine, "before_cursor_execute", hear)


def asked(slurm: FakeSlurm) -> int:
    return slurm.calls.count("request")


def test_the_first_call_without_an_answer_is_a_cycles_last(full: FakeSlurm, daemon: Start) -> None:
    jobs = [wait(full, 2 + i, cpus=20) for i in range(5)]
    full.silent.add("request")
    sodad = daemon()
    assert not sodad.run().error
    assert asked(full) == 1
    full.silent.clear()
    full.advance(2)
    sodad.run()
    assert [job.cpus for job in jobs] == [20, 3, 3, 3, 3], "the first one's turn comes again after a pause"
    full.advance(70)
    sodad.run()
    assert jobs[0].cpus == 3


def test_after_a_call_that_ran_out_of_time_nobody_asks_for_a_while(full: FakeSlurm, daemon: Start) -> None:
    jobs = [wait(full, 2 + i, cpus=20) for i in range(5)]
    full.hanging.add("request")
    sodad = daemon()
    sodad.follow(10)
    assert asked(full) == 1
    full.hanging.clear()
    full.advance(PAUSE_AFTER_TIMEOUT_S)
    sodad.follow(2)
    assert [job.cpus for job in jobs] == [3] * 5


def test_while_the_breaker_is_open_nobody_asks(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    sodad = daemon(change_limits={"breaker_failures": 1, "breaker_pause_s": 60.0, "min_change_interval_s": 0.0})
    full.down = True
    sodad.run()
    full.down = False
    sodad.follow(5)
    assert (asked(full), full.calls.count("partition_limits")) == (0, 0)
    full.advance(60)
    sodad.run()
    assert job.cpus == 3


def test_limits_that_run_out_of_time_are_not_asked_for_each_cycle(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    full.hanging.add("partition_limits")
    sodad = daemon()
    sodad.follow(10)
    assert (full.calls.count("partition_limits"), job.cpus) == (1, 20)
    full.hanging.clear()
    full.advance(PAUSE_AFTER_TIMEOUT_S)
    sodad.follow(2)
    assert job.cpus == 3


def test_an_odd_job_is_not_read_each_cycle_and_stops_nobody(full: FakeSlurm, daemon: Start) -> None:
    odd, other = wait(full, 2, cpus=20), wait(full, 3, cpus=20)
    full.odd.add(2)
    sodad = daemon()
    sodad.follow(20)
    assert (odd.cpus, other.cpus) == (20, 3)
    assert asked(full) == 2
    assert "cannot be read" in thought(sodad).left_alone
    full.odd.clear()
    full.advance(200)
    sodad.follow(2)
    assert odd.cpus == 3
    assert thought(sodad).left_alone == ""


def test_pauses_between_questions_about_a_job_grow(slurm: FakeSlurm) -> None:
    slurm.odd.add(7)
    details = RequestDetailReader(slurm, most=50)
    for now_s in range(0, 4 * int(MAX_PAUSE_S), 20):
        details.begin(now_s)
        with pytest.raises(SlurmReplyError):
            details.ask(7)
    assert 6 <= asked(slurm) <= 10


@pytest.mark.parametrize(
    ("more", "most"),
    [({"mode": "advise"}, 0), ({"change_limits": {"max_changes_per_cycle": 0, "min_change_interval_s": 0.0}}, 1)],
)
def test_earlier_changes_are_looked_up_at_once_and_only_to_act(
    full: FakeSlurm, daemon: Start, more: dict[str, Any], most: int
) -> None:
    for i in range(40):
        wait(full, 2 + i, cpus=20)
    sodad = daemon(**more)
    sodad.run()
    full.advance(2)
    with questions(sodad, "action") as said:
        report = sodad.run()
    assert report.planned >= 40
    assert len(said) == most


def test_what_an_earlier_daemon_thought_is_looked_up_once(full: FakeSlurm, daemon: Start) -> None:
    wait(full, cpus=20)
    full.silent.add("request")
    sodad = daemon()
    sodad.run()
    with questions(sodad, "cpu_proposal") as said:
        sodad.follow(3)
    assert not said


def test_only_the_owners_own_fits_make_a_job_worth_another_look(full: FakeSlurm, daemon: Start) -> None:
    wait(full, cpus=20, peculiar="--cpus-per-gpu")
    sodad = daemon()
    sodad.run()
    fit(sodad, 7, user="bob")
    with questions(sodad, "cpu_fit") as said:
        sodad.follow(2)
    assert asked(full) == 1
    assert not [statement for statement in said if "cpu_fit.cores" in statement], "her history is not read again"
    fit(sodad, 8, job_id=901)
    sodad.follow(2)
    assert asked(full) == 2


def test_a_history_that_makes_no_sense_stops_nothing(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20)
    sodad = daemon()
    fit(sodad, 0, job_id=901)
    fit(sodad, 4, job_id=902, gpus=0)
    assert not sodad.run().error
    assert job.cpus == 3


@dataclass
class SlowQuestions:
    """A clock on which each question takes its time."""

    slurm: FakeSlurm
    each_s: float

    def elapsed_s(self) -> float:
        return asked(self.slurm) * self.each_s


def test_a_cycle_asks_for_half_a_second_at_most(full: FakeSlurm) -> None:
    """A question about a job with a long script takes some 100 ms."""
    jobs = [wait(full, 2 + i, cpus=20) for i in range(20)]
    details = RequestDetailReader(full, most=50, elapsed_s=SlowQuestions(full, 0.125).elapsed_s)
    for cycle in range(5):
        details.begin(2.0 * cycle)
        told = [details.ask(job.job_id) for job in jobs]
        assert sum(request is not None for request in told) == 4


def test_owners_take_turns(full: FakeSlurm, daemon: Start) -> None:
    """More jobs of one owner than a cycle has time for, all more urgent than another's only one."""
    hers = [wait(full, 2 + i, cpus=20) for i in range(120)]
    his = wait(full, 500, cpus=20, user="bob")
    sodad = daemon()
    sodad.run()
    assert (his.cpus, sum(job.cpus == 3 for job in hers)) == (3, 49)


def test_the_owner_who_was_asked_about_last_comes_last() -> None:
    turns = QuestionTurns()
    jobs = [
        replace(record(job_id), user=user) for job_id, user in ((1, "alice"), (2, "alice"), (3, "bob"), (4, "carol"))
    ]
    assert [job.job_id for job in turns.order(jobs)] == [1, 3, 4, 2]
    for job in jobs[:3]:
        turns.note(job, (), 0.0)
    assert [job.job_id for job in turns.order(jobs)] == [4, 1, 3, 2]


def record(job_id: int) -> SlurmJob:
    slurm = FakeSlurm(FakeClock())
    slurm.submit(job_id)
    return slurm.jobs()[0]


def test_held_jobs_come_last(full: FakeSlurm, daemon: Start) -> None:
    held = [wait(full, 2 + i, cpus=20, reason="JobHeldUser", never_starts=True) for i in range(60)]
    for job in held:
        job.priority = 0
    free = [wait(full, 100 + i, cpus=20, priority=1000, user="bob") for i in range(40)]
    sodad = daemon()
    sodad.run()
    assert [job.cpus for job in free] == [3] * 40
    assert sum(job.cpus == 3 for job in held) == 10


def test_a_job_that_its_owner_keeps_changing_is_asked_about_ever_more_seldom(full: FakeSlurm, daemon: Start) -> None:
    job = wait(full, cpus=20, peculiar="--cpus-per-gpu", never_starts=True)
    sodad = daemon()
    for at in range(300):
        job.memory_mib = 1000 + at
        full.advance(2)
        sodad.run()
        if at == 1:
            assert asked(full) == 2, "at first a change counts at once"
    assert asked(full) <= 8
    before, job.gpus = asked(full), 0
    full.advance(2)
    sodad.run()
    job.gpus, job.memory_mib = 1, 5000
    full.advance(2)
    sodad.run()
    assert asked(full) == before, "nobody who leaves for a while begins anew"
    full.advance(1300)
    sodad.run()
    assert asked(full) == before + 1, "it is not forgotten"

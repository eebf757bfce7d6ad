"""Preemptions for jobs that do not start, for a reason that sodad cannot know: they end, whatever the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurm_soda.daemon.preemption.successors import can_take_places, request_of
from slurm_soda.daemon.preemption.vain_preemptions import VainPreemptions
from slurm_soda.daemon.store.tables.scheduling import VainPreemption
from slurm_soda.policies.engine.vain_preemptions import MAX_PAUSE_S
from tests.daemon.fake_slurm import FakeJob, FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

Start = Callable[..., Daemon]
LAS = {"name": "tiresias-las", "parameters": {"thresholds_gpu_s": [100.0], "min_run_s": 0.0}}


@pytest.fixture
def bob(slurm: FakeSlurm) -> FakeJob:
    """A job in the last queue, on all GPUs."""
    job = slurm.submit(1, gpus=4, work_s=1e6, user="bob")
    slurm.advance(60)
    return job


def test_a_job_that_does_not_start_preempts_less_and_less(slurm: FakeSlurm, daemon: Start, bob: FakeJob) -> None:
    sodad = daemon(policy=LAS)
    slurm.submit(2, gpus=4, never_starts=True)
    sodad.follow(300, every_s=3.0)
    assert bob.restarts == 1
    assert bob.state == "RUNNING"
    sodad.follow(100, every_s=3.0)
    assert bob.restarts == 2, "a pause is not for ever"
    sodad.follow(500, every_s=3.0)
    assert bob.restarts == 2, "the second pause is twice as long"
    assert sodad.preemptions()[0].vain_for == [2]


def test_nor_does_another_one_like_it_and_a_restart_forgets_nothing(
    slurm: FakeSlurm, daemon: Start, bob: FakeJob
) -> None:
    sodad = daemon(policy=LAS)
    stuck = slurm.submit(2, gpus=4, never_starts=True)
    sodad.follow(60, every_s=3.0)
    assert bob.restarts == 1
    stuck.state = "CANCELLED"
    sodad = daemon(policy=LAS)
    alike = slurm.submit(3, gpus=4, work_s=1e6)
    sodad.follow(100, every_s=3.0)
    assert (bob.restarts, alike.state) == (1, "PENDING")
    other = slurm.submit(4, gpus=2, work_s=30.0)
    sodad.follow(30, every_s=3.0)
    assert (bob.restarts, other.start_s > 0) == (2, True), "another request has its own chance"


def test_it_is_forgotten_once_such_a_job_starts(slurm: FakeSlurm, daemon: Start, bob: FakeJob) -> None:
    sodad = daemon(policy=LAS)
    stuck = slurm.submit(2, gpus=4, never_starts=True, work_s=10.0)
    sodad.follow(60, every_s=3.0)
    bob.work_s = 0.0
    sodad.follow(3, every_s=3.0)
    assert (bob.state, stuck.state) == ("COMPLETED", "PENDING")
    stuck.never_starts = False
    sodad.follow(6, every_s=3.0)
    assert stuck.state in ("RUNNING", "COMPLETED")
    carol = slurm.submit(5, gpus=4, work_s=1e6, user="carol")
    sodad.follow(60, every_s=3.0)
    slurm.submit(6, gpus=4, work_s=10.0)
    sodad.follow(20, every_s=3.0)
    assert carol.restarts == 1


def test_submitting_and_cancelling_preempts_once(slurm: FakeSlurm, daemon: Start, bob: FakeJob) -> None:
    sodad = daemon(policy=LAS)
    for job_id in range(2, 12):
        job = slurm.submit(job_id, gpus=4, never_starts=True)
        sodad.follow(6, every_s=3.0)
        job.state = "CANCELLED"
        sodad.follow(6, every_s=3.0)
    assert bob.restarts == 1


def test_a_job_whose_places_others_took_was_not_preempted_for_in_vain(
    slurm: FakeSlurm, daemon: Start, bob: FakeJob
) -> None:
    sodad = daemon(policy=LAS)
    slurm.submit(2, gpus=4, work_s=10.0)
    sodad.follow(3, every_s=3.0)
    slurm.submit(3, gpus=4, work_s=1e6, priority=10**9)
    sodad.follow(60, every_s=3.0)
    assert bob.restarts == 1
    assert sodad.preemptions()[0].vain_for == []


def test_pauses_double_up_to_a_day_and_one_attempt_counts_once() -> None:
    vain, request, now_s = VainPreemptions(), request_of(record(1)), 0.0
    for pause_s in (300.0, 600.0, 1200.0):
        vain.note(request, 1, now_s, now_s + 40.0, 30.0)
        vain.note(request, 1, now_s, now_s + 41.0, 30.0)
        assert list(vain.standing(now_s + 40.0 + pause_s - 1.0)) == [request]
        assert not vain.standing(now_s + 40.0 + pause_s)
        now_s += 40.0 + pause_s
    for _ in range(100):
        now_s += 1.0
        vain.note(request, 1, now_s, now_s + 0.5, 30.0)
    assert vain.standing(now_s + MAX_PAUSE_S)
    assert not vain.standing(now_s + MAX_PAUSE_S + 1.0)
    vain.keep({}, now_s, now_s + 3 * MAX_PAUSE_S)
    assert not list(vain)


@pytest.fixture
def bobs(slurm: FakeSlurm) -> list[FakeJob]:
    """Two jobs in the last queue, on four of eight GPUs each, of lower priority than every other job."""
    slurm.gpus = 8
    jobs = [slurm.submit(n, gpus=4, work_s=1e6, user="bob", priority=50) for n in (1, 2)]
    slurm.advance(60)
    return jobs


@pytest.mark.parametrize("limit_s", [9.0, 14_400.0])
def test_no_one_is_preempted_for_a_job_that_may_not_pass_one_that_waits_for_the_same_nodes(
    slurm: FakeSlurm, daemon: Start, bobs: list[FakeJob], limit_s: float
) -> None:
    sodad = daemon(policy=LAS, cycle={"passing_limit_s": limit_s})
    slurm.submit(3, gpus=8, features="[f*2]")
    sodad.follow(10)
    carol = slurm.submit(4, gpus=4, user="carol", work_s=5.0)
    passes = limit_s > 100
    sodad.follow(90 if passes else 8)
    assert carol.state == ("COMPLETED" if passes else "PENDING")
    assert sum(bob.restarts for bob in bobs) == passes
    assert all(bob.state == "RUNNING" for bob in bobs), "a preempted job gets back what it has left for another one"
    assert not sodad.rows(VainPreemption)


@pytest.mark.parametrize("limit_s", [16.0, 44.0])
def test_a_job_behind_one_that_is_overdue_by_the_time_did_not_preempt_in_vain(
    slurm: FakeSlurm, daemon: Start, bobs: list[FakeJob], limit_s: float
) -> None:
    """With 44 s it becomes overdue in the cycle in which the preempted job competes again."""
    sodad = daemon(policy=LAS, cycle={"passing_limit_s": limit_s})
    slurm.submit(3, gpus=8, features="[f*2]")
    sodad.follow(12)
    carol = slurm.submit(4, gpus=4, user="carol", work_s=5.0, never_starts=True)
    sodad.follow(60)
    assert sum(bob.restarts for bob in bobs) == 1
    assert carol.state == "PENDING"
    assert not sodad.rows(VainPreemption)


def test_a_job_that_fits_and_is_not_lifted_past_one_that_does_not_knows_it(
    slurm: FakeSlurm, daemon: Start, bobs: list[FakeJob]
) -> None:
    """One that nobody preempted stays behind a job that the policy ranks before it."""
    sodad = daemon(policy=LAS)
    slurm.submit(3, gpus=8, features="[f*2]")
    sodad.follow(5)
    assert "behind" not in sodad.job(3).note
    assert sodad.job(3).note["unknown_nodes"] == "features"
    slurm.requeue(1)
    sodad.follow(140)
    assert (bobs[0].state, sodad.job(1).note["verdict"], sodad.job(1).note["behind"]) == ("PENDING", "start", 3)
    slurm.all[3].state = "CANCELLED"
    sodad.follow(5)
    assert (bobs[0].state, sodad.job(1).note.get("behind")) == ("RUNNING", None)


def change(job: FakeJob, **fields: object) -> None:
    """What an owner does with ``scontrol update``; Slurm does not start the job any more."""
    job.never_starts = True
    for name, value in fields.items():
        setattr(job, name, value)


WAYS_OUT: dict[str, Callable[[FakeJob, FakeSlurm], None]] = {
    "begins later": lambda job, slurm: change(job, eligible_s=slurm.clock.now_s() + 3600.0, reason="BeginTime"),
    "is cancelled and forgotten": lambda job, slurm: slurm.all.pop(job.job_id) and None,
    "asks for more GPUs": lambda job, _: change(job, gpus=8),
    "asks for more CPUs": lambda job, _: change(job, cpus=99),
    "asks for another partition": lambda job, _: change(job, partition="other"),
    "asks for other nodes": lambda job, _: change(job, req_node_names="n2"),
    "excludes nodes": lambda job, _: change(job, excluded_nodes="n1"),
    "asks for a feature": lambda job, _: change(job, features="none"),
}


@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_a_job_whose_owner_keeps_it_from_starting_preempts_once(
    slurm: FakeSlurm, daemon: Start, bob: FakeJob, way_out: str
) -> None:
    """It makes itself unable to start as soon as the other job leaves; then comes the next one like it."""
    slurm.completing_s, slurm.gpus = 6.0, 5
    slurm.submit(9, work_s=1e6, user="eve")
    sodad = daemon(policy=LAS)
    for job_id in range(2, 6):
        job = slurm.submit(job_id, gpus=4, work_s=10.0)
        sodad.follow(3)
        if bob.state == "COMPLETING":
            if "cancelled" in way_out:
                job.state = "CANCELLED"
                sodad.follow(2)
            WAYS_OUT[way_out](job, slurm)
        sodad.follow(40)
        job.state = "CANCELLED"
    assert bob.restarts == 1
    assert bob.state == "RUNNING"
    assert [row.gpus for row in sodad.rows(VainPreemption)] == [4]


@pytest.mark.parametrize(
    ("fields", "can"),
    [
        ({"reason": "Resources"}, True),
        ({"reason": "BeginTime", "restarts": 1, "submit_s": 1000.0, "eligible_s": 1121.0}, True),
        ({"reason": "BeginTime", "restarts": 1, "submit_s": 1000.0, "eligible_s": 1200.0}, False),
        ({"reason": "BeginTime", "restarts": 0, "submit_s": 1000.0, "eligible_s": 1121.0}, False),
        ({"reason": "Resources", "eligible_s": 1020.0}, False),
        ({"reason": "Dependency"}, False),
        ({"reason": "Resources", "state": "RUNNING"}, False),
    ],
)
def test_only_the_wait_after_a_requeue_is_not_its_owners(fields: dict[str, Any], can: bool) -> None:
    job = record(1, **{"state": "PENDING", "submit_s": 900.0, "eligible_s": 900.0, **fields})
    assert can_take_places(job, 1000.0) == can

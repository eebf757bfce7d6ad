"""Which updates follow from a number of instances: tables of what waits and what is sent, and a property."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_tasks import TaskHistory, device_of
from slurm_soda.daemon.services.start_limits import ASK_EVERY_S, HOLDS_S, SEEN_FOR_S, StartLimits
from slurm_soda.daemon.services.task_starts import StartStep, plan_starts
from slurm_soda.policies.pipeline.actions import ScaleService
from slurm_soda.policies.services.service import Device
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.write.scontrol_updates import refusal_of_update
from slurm_soda.slurm_ext.write.sending import update_of
from slurm_soda.slurm_ext.write.start_leases import MARK_S, array_tasks, is_lease, lease_end_s, lease_release_changes
from tests.daemon.records import record

NOW_S = 1_700_000_000.0
LEASE_S = 300.0
END_S = float(lease_end_s(NOW_S, LEASE_S))
KEY = ServiceKey("alice", "answers")


def task(job_id: int, tasks: str, begin_s: float = NOW_S, **more: Any) -> SlurmJob:
    """A waiting record of array 7, on cores."""
    values: dict[str, Any] = {
        "user": "alice", "state": "PENDING", "array_job_id": 7, "array_task": tasks, "eligible_s": begin_s, "gpus": 0,
        "submit_s": NOW_S - 1000.0, "reason": "None", "hints": Hints(service="answers"), "restarts": 0,
    }  # fmt: skip
    return record(job_id, **(values | more))


def sent(steps: list[StartStep]) -> list[tuple[int, str, str]]:
    """Job, task and begin time of each update."""
    assert all(not refusal_of_update(update_of(step.change)) for step in steps)
    return [
        (step.job.job_id, str(step.change.new.get("ArrayTask", "")), step.change.new["StartTime"]) for step in steps
    ]


def plan(jobs: list[SlurmJob], instances: int, running: int = 0, *, gpu_type: str = "", **more: Any) -> list[StartStep]:
    device = device_of(jobs[0])
    records = TaskHistory().tasks(jobs, NOW_S)[KEY].waiting[device]
    scale = ScaleService("alice", "answers", device, instances, first=False, reason="because", gpu_type=gpu_type)
    return plan_starts(scale, records, running, now_s=NOW_S, lease_s=LEASE_S, **more)


LEASE = f"uts{END_S:.0f}"


@pytest.mark.parametrize(
    ("jobs", "instances", "running", "expected"),
    [
        ([task(7, "0-3")], 0, 0, [(7, "", LEASE)]),
        ([task(7, "0-3")], 4, 0, []),
        ([task(7, "0-3")], 2, 0, [(7, "", LEASE), (7, "0", "now"), (7, "1", "now")]),
        ([task(7, "0-3", END_S)], 0, 0, []),
        ([task(7, "0-3", END_S)], 4, 0, [(7, "", "now")]),
        ([task(7, "0-3", END_S)], 3, 2, [(7, "0", "now")]),
        ([task(7, "0-3", END_S - 180.0)], 1, 0, [(7, "", LEASE), (7, "0", "now")]),
        ([task(7, "0,4-5", math.nan, reason="JobArrayTaskLimit")], 1, 0, [(7, "", LEASE), (7, "0", "now")]),
        # Those that may start already do, so that nothing changes to and fro.
        ([task(7, "2-3", END_S), task(9, "0")], 1, 0, []),
        ([task(7, "2-3", END_S), task(9, "0"), task(8, "1")], 1, 0, [(9, "", LEASE)]),
        # After a requeue, and before the first start: waits of Slurm's, and of ours.
        ([task(9, "0", NOW_S + 100, submit_s=NOW_S - 21, restarts=1)], 0, 0, [(9, "", LEASE)]),
        ([task(9, "0", NOW_S + 100, submit_s=NOW_S - 21, restarts=1)], 1, 0, [(9, "", "now")]),
        ([task(9, "0", NOW_S + 120, submit_s=NOW_S - 1, restarts=1)], 1, 0, []),
        ([task(7, "0-3", NOW_S + 55, submit_s=NOW_S - 5)], 1, 0, [(7, "", LEASE), (7, "0", "now")]),
        # The owner's own word.
        ([task(7, "0-3", NOW_S + 3600)], 4, 0, []),
        ([task(7, "0-3", NOW_S + 90, submit_s=NOW_S - 5)], 4, 0, []),
        ([task(7, "0-3", reason="JobHeldUser")], 0, 0, []),
        ([task(7, "0-3", dependency="afterok:3")], 0, 0, []),
    ],
)
def test_what_is_sent(jobs: list[SlurmJob], instances: int, running: int, expected: list[tuple[int, str, str]]) -> None:
    assert sent(plan(jobs, instances, running)) == expected


def test_tasks_of_the_wanted_gpu_type_start_first() -> None:
    """Of two arrays, also where those of the other type may start already: there is no room for them any more."""
    a100 = task(7, "0-1", END_S, gpus=1, gpu_type="a100")
    t4 = task(20, "0-1", END_S, gpus=1, gpu_type="t4", array_job_id=20)
    for gpu_type, started in (("t4", 20), ("a100", 7), ("", 7), ("h100", 7)):
        assert sent(plan([a100, t4], 1, gpu_type=gpu_type)) == [(started, "0", "now")]
    let = task(7, "0", gpus=1, gpu_type="a100")
    assert sent(plan([let, t4], 1, gpu_type="a100")) == []
    assert sent(plan([let, t4], 1, gpu_type="t4")) == [(20, "0", "now"), (7, "", LEASE)]
    any_type = task(30, "0", END_S, gpus=1, array_job_id=30)
    assert sent(plan([a100, any_type], 1, gpu_type="t4")) == [(30, "", "now")]


def test_a_requeued_task_starts_when_its_former_run_has_left() -> None:
    jobs = [task(9, "0", NOW_S + 60, submit_s=NOW_S - 61, restarts=1)]
    assert sent(plan(jobs, 1, left=())) == []
    assert sent(plan(jobs, 1, left=(9,))) == [(9, "", "now")]
    long_ago = [task(9, "0", END_S, submit_s=NOW_S - 181, restarts=1)]
    assert sent(plan(long_ago, 1, left=())) == [(9, "", "now")]


@pytest.mark.parametrize("begin_s", [END_S, NOW_S + 100])
def test_another_task_starts_in_place_of_one_whose_former_run_may_still_be_there(begin_s: float) -> None:
    """Such as one whose node was lost: nobody knows when it has left, and its service may need an instance now."""
    jobs = [task(7, "1-3", END_S), task(9, "0", begin_s, submit_s=NOW_S - 21, restarts=1)]
    lease = [] if begin_s == END_S else [(9, "", LEASE)]
    assert sent(plan(jobs, 1, left=())) == [(7, "1", "now"), *lease]
    assert (9, "", "now") in sent(plan(jobs, 4, left=(9,)))


def test_a_lease_that_somebody_else_ended_is_the_owners_and_one_that_sodad_ended_is_not() -> None:
    history = TaskHistory()
    leased, begun = task(7, "0-1", END_S), task(7, "0-1", NOW_S)
    assert history.tasks([leased], NOW_S)[KEY].waiting[Device.CPU][0].standing == "leased"
    (owners,) = history.tasks([begun], NOW_S + 5)[KEY].waiting[Device.CPU]
    assert (owners.standing, owners.may_start) == ("owners", True)
    history.tasks([leased], NOW_S)
    history.note_let(leased, None)
    (let,) = history.tasks([begun], NOW_S + 5)[KEY].waiting[Device.CPU]
    assert let.standing == "free"


def test_a_lease_that_ended_by_itself_may_be_renewed() -> None:
    history = TaskHistory()
    history.tasks([task(7, "0-1", END_S)], NOW_S)
    (record,) = history.tasks([task(7, "0-1", END_S)], END_S + 30)[KEY].waiting[Device.CPU]
    assert record.standing == "free"


@given(st.floats(1.6e9, 2e9), st.floats(60.0, 900.0))
def test_a_lease_lasts_its_time_and_less_than_a_minute_more(now_s: float, lease_s: float) -> None:
    end_s = lease_end_s(now_s, lease_s)
    assert lease_s <= end_s - now_s < lease_s + 61.0
    assert end_s % 60 == MARK_S
    assert is_lease(task(7, "0", float(end_s)), now_s)


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    leased=st.lists(st.booleans(), min_size=4, max_size=4),
    instances=st.integers(0, 25),
    running=st.integers(0, 5),
)
def test_as_many_may_start_as_shall_run(counts: list[int], leased: list[bool], instances: int, running: int) -> None:
    """Whatever waits: afterwards as many tasks may start as are lacking, or all, and a second look sends nothing."""
    begin: dict[int, float] = {}
    jobs, first = [], 0
    for at, count in enumerate(counts):
        begin |= dict.fromkeys(range(first, first + count), END_S if leased[at] else NOW_S)
        text = f"{first}-{first + count - 1}" if count > 1 else str(first)
        jobs.append(task(100 + at, text, begin[first]))
        first += count
    numbers = {job.job_id: array_tasks(job.array_task) for job in jobs}
    for step in plan(jobs, instances, running):
        value = NOW_S if step.lets_start else END_S
        begin |= dict.fromkeys(numbers[step.job.job_id] if step.task is None else (step.task,), value)
    free = sum(at_s == NOW_S for at_s in begin.values())
    assert free == min(max(instances - running, 0), first)
    again = [task(200 + number, str(number), at_s) for number, at_s in begin.items()]
    assert plan(again, instances, running) == []


def test_release_ends_leases_and_nothing_else() -> None:
    jobs = [
        task(7, "0-3", END_S),
        task(8, "4", NOW_S + 3600),
        task(9, "5", END_S, hints=Hints()),
        task(10, "6", END_S, state="RUNNING"),
        task(11, "7", END_S - 600),
    ]
    changes = lease_release_changes(jobs, NOW_S, "out")
    assert [(change.job_id, dict(change.new), dict(change.old)) for change in changes] == [
        (7, {"StartTime": "now"}, {"StartTime": LEASE})
    ]


@pytest.mark.parametrize(("text", "expected"), [("", ()), ("4", (4,)), ("4-6", (4, 5, 6)), ("0,4-5,9", (0, 4, 5, 9))])
def test_tasks_of_a_record(text: str, expected: tuple[int, ...]) -> None:
    assert array_tasks(text) == expected


def test_the_limit_of_an_array_is_no_word_of_its_owner() -> None:
    """Slurm tells no begin time of tasks that are up against ``--array=0-7%2``."""
    history = TaskHistory()
    history.tasks([task(7, "0-1", END_S)], NOW_S)
    limited = task(7, "0-1", math.nan, reason="JobArrayTaskLimit")
    assert history.tasks([limited], NOW_S + 5)[KEY].waiting[Device.CPU][0].standing == "free"


@pytest.mark.parametrize("back_s", [900.0, 86_400.0])
def test_a_lease_is_still_one_when_the_clock_was_set_back_and_is_cut_to_its_length(back_s: float) -> None:
    history, jobs = TaskHistory(), [task(7, "0-3", END_S)]
    history.tasks(jobs, NOW_S)
    now_s = NOW_S - back_s
    (record,) = history.tasks(jobs, now_s)[KEY].waiting[Device.CPU]
    assert record.standing == "leased"
    scale = ScaleService("alice", "answers", Device.CPU, 0, first=False, reason="because")
    steps = plan_starts(scale, [record], 0, now_s=now_s, lease_s=LEASE_S)
    assert sent(steps) == [(7, "", f"uts{lease_end_s(now_s, LEASE_S)}")]


def test_tasks_beyond_the_limit_of_their_array_do_not_count_as_startable() -> None:
    """Of ``--array=0-7%2``, of which two run: nothing else of it can start, until one of them leaves."""
    history = TaskHistory()
    running = [task(8 + number, str(number), state="RUNNING") for number in range(2)]
    limited = task(7, "2-7", math.nan, reason="JobArrayTaskLimit")
    assert history.tasks([limited, *running], NOW_S)[KEY].count_waiting(Device.CPU) == 0
    leased = task(7, "2-7", END_S, reason="BeginTime")
    assert history.tasks([leased, *running], NOW_S + 5)[KEY].count_waiting(Device.CPU) == 0
    assert history.tasks([leased, running[0]], NOW_S + 6)[KEY].count_waiting(Device.CPU) == 1
    assert history.tasks([limited, running[0]], NOW_S + 6)[KEY].count_waiting(Device.CPU) == 1, "its reason is older"
    other = task(20, "0-3", END_S, array_job_id=20)
    assert history.tasks([leased, *running, other], NOW_S + 7)[KEY].count_waiting(Device.CPU) == 4
    # Its owner may have raised it: it is found out again.
    later_s = NOW_S + 5 + HOLDS_S
    renewed = task(7, "2-7", END_S + 600, reason="BeginTime")
    assert history.tasks([renewed, *running], later_s)[KEY].count_waiting(Device.CPU) == 6


@pytest.mark.parametrize("reason", ["AssocGrpCpuLimit", "QOSMaxJobsPerUserLimit", "Licenses"])
def test_tasks_that_lack_more_than_places_count_as_startable_for_half_a_minute(reason: str) -> None:
    history = TaskHistory()
    running = [task(8, "0", state="RUNNING")]
    kept, leased = task(7, "1-7", reason=reason), task(7, "1-7", END_S, reason="BeginTime")
    for after_s, count in ((0.0, 7), (SEEN_FOR_S - 1.0, 7), (SEEN_FOR_S, 0)):
        assert history.tasks([kept, *running], NOW_S + after_s)[KEY].count_waiting(Device.CPU) == count
    seen_s = NOW_S + SEEN_FOR_S
    assert history.tasks([leased, *running], seen_s + 5)[KEY].count_waiting(Device.CPU) == 0
    assert history.tasks([leased], seen_s + 6)[KEY].count_waiting(Device.CPU) == 1, "the one that ran has left"
    again = task(7, "1-7", END_S + 600, reason="BeginTime")
    assert history.tasks([again, *running], seen_s + HOLDS_S)[KEY].count_waiting(Device.CPU) == 7


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None", "BeginTime"])
def test_tasks_that_lack_only_places_count_as_startable(reason: str) -> None:
    history = TaskHistory()
    for after_s in (0.0, 60.0, 3600.0):
        (found,) = history.tasks([task(7, "0-3", reason=reason)], NOW_S + after_s).values()
        assert found.count_waiting(Device.CPU) == 4


def test_a_reason_that_comes_and_goes_and_a_clock_that_is_set_back() -> None:
    history = TaskHistory()
    kept, waits = task(7, "0-3", reason="AssocGrpCpuLimit"), task(7, "0-3", reason="Priority")
    for after_s, job in ((0.0, kept), (20.0, waits), (25.0, kept), (50.0, kept), (-500.0, kept), (-471.0, kept)):
        assert history.tasks([job], NOW_S + after_s)[KEY].count_waiting(Device.CPU) == 4
    assert history.tasks([kept], NOW_S - 470.0)[KEY].count_waiting(Device.CPU) == 0


def test_owners_throttles_are_asked_for_and_limits_of_accounting_are_not() -> None:
    limits = StartLimits()
    alone = task(40, "", reason="AssocMaxJobsLimit", array_job_id=0)
    limited = [
        task(7, "2-7", math.nan, reason="JobArrayTaskLimit"),
        task(20, "0-3", reason="Licenses", array_job_id=20),
    ]
    for after_s in (0.0, SEEN_FOR_S):
        limits.observe([(job, True) for job in (*limited, alone)], {7: 2}, NOW_S + after_s)
    assert limits.admitted([7, 20, 30, 40], {7: 1}) == {7: 1, 20: 0, 40: 0}
    assert limits.to_ask(0.0) == [7]
    assert limits.to_ask(ASK_EVERY_S - 1.0) == []
    for told, admitted in ((4, {7: 3}), (1, {7: 0}), (SlurmReplyError("cut short"), {7: 0}), (0, {})):
        limits.take({7: told}, NOW_S + 60.0)
        assert limits.admitted([7], {7: 1}) == admitted
    assert limits.to_ask(1000.0) == [], "there is none any more"

"""The state machine of one preemption as a table: phase, what Slurm shows, what is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.preemption.active_preemptions import ActivePreemptions
from slurm_soda.daemon.preemption.state_machine import (
    ActivePreemption,
    PreemptionContext,
    PreemptionDecision,
    decide_next_step,
)
from slurm_soda.daemon.settings.scheduling import PreemptionSettings
from slurm_soda.policies.pipeline.stages import empty_plan
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.daemon.records import NAN, record

NOW_S = 2000.0
USR1 = Hints(checkpoint_signal="USR1", checkpoint_grace_s=30)


def active_preemption(phase: str, **more: Any) -> ActivePreemption:
    values: dict[str, Any] = {
        "job_id": 1, "submit_s": 1000.0, "restart": 0, "created_s": 1899.6, "created_steady_s": 1899.6,
        "deadline_s": 1990.0, "for_jobs": (2,), "reason": "test",
    }  # fmt: skip
    return ActivePreemption(phase=phase, **(values | more))  # type: ignore[arg-type]  # a table writes phases as text


def step(phase: str, job: SlurmJob | None, *, around: dict[str, Any] | None = None, **more: Any) -> PreemptionDecision:
    defaults: dict[str, Any] = {"may_begin": True, "wanted": False, "waiting": {2}, "release_after_s": 30.0}
    return decide_next_step(
        active_preemption(phase, **more),
        job,
        PreemptionContext(at=Instant(NOW_S, NOW_S), **(defaults | (around or {}))),
    )


RUNS = record(state="RUNNING", start_s=1500.0)
RUNS_USR1 = record(state="RUNNING", start_s=1500.0, hints=USR1)
LEAVES = record(state="COMPLETING", restarts=1, start_s=1999.0)
LEASED = record(reason="BeginTime", restarts=1, submit_s=1995.0, eligible_s=2116.0)
OWNERS_TIME = record(reason="BeginTime", restarts=1, submit_s=1995.0, eligible_s=5600.0)
FREE = record(reason="Priority", restarts=1, submit_s=1995.0, eligible_s=1996.0)
RUNS_AGAIN = record(state="RUNNING", restarts=1, submit_s=1995.0, start_s=1999.0)
FAILED = record(state="FAILED", start_s=1500.0, end_s=1950.0, exit_code="3:0", hints=USR1)
FINISHED = record(state="COMPLETED", start_s=1500.0, end_s=1950.0, hints=USR1)


@pytest.mark.parametrize(
    ("phase", "job", "then", "send"),
    [
        ("intended", RUNS, "intended", "requeue"),
        ("intended", RUNS_USR1, "intended", "signal"),
        ("intended", LEAVES, "intended", None),
        ("intended", LEASED, "requeued", None),
        ("intended", RUNS_AGAIN, "done", None),
        ("intended", None, "lost", None),
        ("intended", FINISHED, "lost", None),
        ("intended", FAILED, "intended", "requeue-ended"),
        ("intended", record(state="FAILED", end_s=1950.0, exit_code="1:0"), "lost", None),
        ("intended", record(state="FAILED", end_s=1800.0, exit_code="1:0", hints=USR1), "lost", None),
        ("signalled", RUNS_USR1, "signalled", "requeue"),
        ("signalled", FAILED, "signalled", "requeue-ended"),
        ("signalled", record(state="FAILED", end_s=1899.0, exit_code="3:0", hints=USR1), "signalled", "requeue-ended"),
        ("signalled", FINISHED, "lost", None),
        ("signalled", record(state="CANCELLED", end_s=1950.0, hints=USR1), "lost", None),
        ("signalled", record(state="TIMEOUT", end_s=1950.0, hints=USR1), "lost", None),
        ("signalled", LEASED, "requeued", None),
        ("requeued", RUNS, "requeued", "requeue"),
        ("requeued", LEAVES, "requeued", None),
        ("requeued", LEASED, "requeued", None),
        ("requeued", FREE, "done", None),
        ("requeued", RUNS_AGAIN, "done", None),
        ("requeued", record(state="CANCELLED", restarts=1, submit_s=1995.0), "done", None),
        ("requeued", record(state="NODE_FAIL", end_s=1950.0), "requeued", "requeue-ended"),
        ("requeued", record(reason="JobHeldUser", restarts=1, submit_s=1995.0), "done", None),
        ("released", LEASED, "released", "start-now"),
        ("released", FREE, "done", None),
        ("requeued", OWNERS_TIME, "done", None),
        ("released", OWNERS_TIME, "done", None),
        ("requeued", record(restarts=0, submit_s=1000.0), "lost", None),
        ("requeued", record(restarts=0, submit_s=900.0, state="RUNNING"), "lost", None),
    ],
)
def test_next_step(phase: str, job: SlurmJob | None, then: str, send: str | None) -> None:
    assert (step(phase, job).phase, step(phase, job).send) == (then, send)


@pytest.mark.parametrize("phase", ["intended", "signalled", "requeued", "released"])
def test_a_job_whose_former_run_may_still_be_there_waits_as_slurm_has_it(phase: str) -> None:
    """Its node failed: Slurm had it waiting again at once."""
    assert step(phase, LEASED, around={"wanted": True, "left": False}) == PreemptionDecision(phase)  # type: ignore[arg-type]
    assert step(phase, FREE, around={"left": False}).phase == "done"


@pytest.mark.parametrize(
    ("end_s", "boot_s", "send"),
    [
        (1960.0, 0.0, "requeue-ended"),
        (
            1980.0,
            0.0,
            "requeue-ended",
        ),  # the grace was over at 1960; Slurm hears of an end within 10 s, by its own clock
        (1981.0, 0.0, None),
        (2200.0, 2190.0, "requeue-ended"),  # slurmctld was down, and then heard of all that had ended
        (2211.0, 2190.0, None),
        (9999.0, float("inf"), "requeue-ended"),  # nobody knows whether it was down
    ],
)
@pytest.mark.parametrize("phase", ["intended", "signalled", "requeued"])
def test_an_end_long_after_the_grace_is_the_job_s_own(
    phase: str, end_s: float, boot_s: float, send: str | None
) -> None:
    failed = record(state="FAILED", end_s=end_s, exit_code="1:0", hints=USR1)
    assert step(phase, failed, around={"boot_s": boot_s}, deadline_s=1960.0).send == send


def test_a_clock_that_was_set_back_makes_no_end_late() -> None:
    """Slurm dated it at 1980 by the old clock; the grace was over at 1960 of that clock, which now shows 1000."""
    set_back = Instant(1000.0, NOW_S)
    context = PreemptionContext(set_back, True, False, {2}, 30.0, boot_s=0.0)
    failed = record(state="FAILED", end_s=1980.0, exit_code="3:0", hints=USR1)
    assert decide_next_step(active_preemption("signalled", deadline_s=1960.0), failed, context).send == "requeue-ended"


@pytest.mark.parametrize("hours", [-5, -1, 1, 5])
def test_a_clock_that_differs_from_slurm_s_by_hours_loses_no_job(hours: int) -> None:
    """As when a step of sodad's clock came before the preemption: all its own times agree, and Slurm's date is another's."""
    off_s = 3600.0 * hours
    context = PreemptionContext(Instant(NOW_S + off_s, NOW_S), True, False, {2}, 30.0, boot_s=0.0)
    preempted = active_preemption("signalled", created_s=1899.6 + off_s)
    assert decide_next_step(preempted, FAILED, context).send == "requeue-ended"


def test_the_grace_is_waited_for() -> None:
    assert step("signalled", RUNS_USR1, deadline_s=NOW_S + 1).send is None


@pytest.mark.parametrize(
    ("around", "send"),
    [
        ({}, None),
        ({"wanted": True}, "start-now"),
        ({"waiting": set()}, "start-now"),
        ({"release_after_s": 4.0}, "start-now"),
        ({"may_begin": False}, "start-now"),
    ],
)
def test_a_requeued_job_is_released_in_time(around: dict[str, Any], send: str | None) -> None:
    assert step("requeued", LEASED, around=around).send == send
    assert step("requeued", OWNERS_TIME, around=around).send is None, "it is the owner who lets it wait"


STILL_A_GUEST = record(reason="BeginTime", restarts=1, submit_s=1995.0, eligible_s=2116.0, gpus=1, shared_gpus=1)


@pytest.mark.parametrize(
    ("job", "around", "why"),
    [
        (LEASED, {}, ""),
        (LEASED, {"waiting": set()}, ""),
        (LEASED, {"wanted": True}, "the plan starts it"),
        (LEASED, {"release_after_s": 4.0}, "it has waited for 4 s"),
        (LEASED, {"may_begin": False}, "sodad no longer enforces"),
        (STILL_A_GUEST, {"wanted": True}, ""),
        (STILL_A_GUEST, {"release_after_s": 4.0}, ""),
        (STILL_A_GUEST, {"may_begin": False}, ""),
    ],
)
def test_a_guest_that_left_for_nobody_starts_when_the_plan_wants_it_but_not_beside_its_host(
    job: SlurmJob, around: dict[str, Any], why: str
) -> None:
    found = step("requeued", job, around=around, for_jobs=())
    assert (found.send, found.why) == (("start-now", why) if why else (None, ""))


@pytest.mark.parametrize(
    ("reason", "restarts", "sends"),
    [("Priority", 0, []), ("BeginTime", 1, []), ("BeginTime", 0, ["start-now"]), ("JobHeldUser", 0, ["start-now"]),
     ("JobHeldAdmin", 0, ["start-now"]), ("Dependency", 0, ["start-now"])],
)  # fmt: skip
def test_places_are_not_kept_for_a_job_that_cannot_take_them(reason: str, restarts: int, sends: list[str]) -> None:
    following = ActivePreemptions(PreemptionSettings())
    following.adopt([active_preemption("requeued")])
    jobs = {1: LEASED, 2: record(2, reason=reason, restarts=restarts)}
    steps, _ = following.advance(jobs, None, Instant(NOW_S, NOW_S), may_begin=True, left={1})
    assert [each.send for each in steps] == sends


@pytest.mark.parametrize(
    ("starts", "new"), [([], {"StartTime": "now", "SiteFactor": "0"}), ([1], {"StartTime": "now"})]
)
def test_a_lift_ends_with_the_wait_unless_the_plan_starts_the_job(starts: list[int], new: dict[str, str]) -> None:
    """It is from before its last start, and Slurm would start it before those that the plan ranks before it."""
    following = ActivePreemptions(PreemptionSettings())
    following.adopt([active_preemption("requeued")])
    jobs = {1: LEASED, 2: record(2, state="RUNNING"), 3: record(3, reason="Priority")}
    plan = replace(empty_plan(), starts=np.array(starts, dtype=np.int64))
    (found,), _ = following.advance(jobs, plan, Instant(NOW_S, NOW_S), may_begin=True, left={1})
    assert (found.send, found.change.new) == ("start-now", new)


@pytest.mark.parametrize(
    ("second", "verdict", "position", "sends"),
    [
        (record(2, reason="Resources"), JobVerdict.START, [0, 1], []),
        (record(2, reason="Resources"), JobVerdict.WAIT_FOR_PREEMPTION, [0, 1], []),
        (record(2, reason="Resources"), JobVerdict.WAIT, [0, 1], ["start-now"]),
        (record(2, reason="Resources"), JobVerdict.START, [1, 0], ["start-now"]),
        (record(2, state="RUNNING"), JobVerdict.RUN, [0, 1], ["start-now"]),
    ],
    ids=[
        "it ranks first",
        "others leave as well",
        "the other one fits nowhere",
        "it ranks behind",
        "the other one runs",
    ],
)
def test_who_moved_does_not_start_before_the_job_it_moved_for(
    second: SlurmJob, verdict: JobVerdict, position: list[int], sends: list[str]
) -> None:
    """Slurm might put it where it was."""
    following = ActivePreemptions(PreemptionSettings())
    following.adopt([active_preemption("requeued")])
    verdicts = np.array([JobVerdict.START, verdict], dtype=np.int8)
    notes = replace(empty_plan().notes, job_id=np.array([1, 2]), position=np.array(position), verdict=verdicts)
    starts = [1, 2] if verdict == JobVerdict.START else [1]
    plan = replace(empty_plan(), starts=np.array(starts), notes=notes)
    steps, _ = following.advance({1: LEASED, 2: second}, plan, Instant(NOW_S, NOW_S), may_begin=True, left={1})
    assert [each.send for each in steps] == sends


@pytest.mark.parametrize(("requeued_s", "send"), [(NOW_S - 1.9, None), (NOW_S - 2.0, "start-now")])
@pytest.mark.parametrize("phase", ["signalled", "requeued", "released"])
def test_no_node_sees_a_job_again_in_the_second_of_its_requeue(phase: str, requeued_s: float, send: str | None) -> None:
    just_left = record(reason="BeginTime", restarts=1, submit_s=requeued_s, eligible_s=requeued_s + 121)
    assert step(phase, just_left, around={"wanted": True}).send == send


def test_a_release_is_followed_until_slurmctld_has_saved_it() -> None:
    """Killed before that, slurmctld would make the job wait for the rest of its 121 s."""
    unsaved = {"deadline_s": NOW_S + 0.1}
    assert (step("released", FREE, **unsaved).phase, step("released", FREE, **unsaved).send) == ("released", None)
    assert step("released", FREE, deadline_s=NOW_S).phase == "done"
    assert step("released", LEASED, **unsaved).send == "start-now"
    assert step("released", RUNS_AGAIN, **unsaved).phase == "done"
    assert step("requeued", FREE, **unsaved).phase == "done", "it was never released, so there is nothing to forget"


def test_nothing_begins_any_more_once_sodad_may_not_act() -> None:
    assert step("intended", RUNS, around={"may_begin": False}).phase == "lost"
    assert step("signalled", RUNS_USR1, around={"may_begin": False}).send == "requeue", "what was begun is finished"


def test_a_step_that_slurm_keeps_refusing_is_given_up() -> None:
    assert step("intended", RUNS, failures=5).phase == "lost"
    assert step("requeued", LEASED, failures=5).phase == "done"


@pytest.mark.parametrize(("asked", "grace_s"), [(None, 20.0), (30, 20.0), (10, 10.0)])
def test_no_grace_is_longer_than_the_longest(asked: int | None, grace_s: float) -> None:
    """Not the default one either: `release-all` waits no longer."""
    following = ActivePreemptions(PreemptionSettings(default_grace_s=60.0, max_grace_s=20.0))
    assert following.grace_s(record(hints=Hints(checkpoint_signal="USR1", checkpoint_grace_s=asked))) == grace_s


STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")


@given(
    st.sampled_from(["intended", "signalled", "requeued", "released"]),
    st.sampled_from(STATES),
    st.integers(0, 2),
    st.sampled_from(["TERM", "USR1"]),
    st.sampled_from([NAN, 1890.0, 1950.0]),
    st.booleans(),
)
def test_a_requeue_is_only_ever_sent_to_the_run_that_is_preempted(
    phase: str, state: str, restarts: int, signal: str, end_s: float, may_begin: bool
) -> None:
    job = record(state=state, restarts=restarts, end_s=end_s, hints=Hints(checkpoint_signal=signal))
    taken = step(phase, job, around={"may_begin": may_begin}, restart=1)
    if taken.send in ("signal", "requeue", "requeue-ended"):
        assert restarts == 1
    if taken.send == "requeue":
        assert state in ("RUNNING", "SUSPENDED")
    if taken.send == "requeue-ended":
        assert state in ("FAILED", "NODE_FAIL")
        assert end_s >= 1898.6

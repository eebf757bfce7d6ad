"""The stage that parts pairs: who leaves, when, and that no policy lets them meet again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.pipeline.stages import empty_plan, pipeline_of
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.mechanism.guest_check import find_guest_fault
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S
from slurm_soda.policies.sharing.parting.part_pairs import PartPairs
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState
from tests.policies.sharing.test_mechanism import SETTINGS, draw_scene, on_slurm, running, waiting
from tests.sampling import examples
from tests.simulator.sharing.players import plan_of

on_some_worlds = settings(max_examples=examples(400), deadline=None)


def observed(snapshot: SharingSnapshot, slowdown: Sequence[float], together_s: Sequence[float]) -> SharingSnapshot:
    sharing = replace(
        snapshot.sharing, observed_slowdown=np.array(slowdown, dtype=np.float64),
        together_s=np.array(together_s, dtype=np.float64),
    )  # fmt: skip
    return replace(snapshot, sharing=sharing)


def a_pair(*, host_bound: float = np.inf, guest_bound: float = np.inf, **guest: Any) -> SharingSnapshot:
    """Job 1 hosts job 8 on GPU 0, and job 9 waits."""
    return on_slurm(
        running(1, 0, max_slowdown=host_bound), running(8, 0, guest=True, max_slowdown=guest_bound, **guest), waiting(9, 1)
    )  # fmt: skip


def parted(snapshot: SharingSnapshot, plan: Plan | None = None) -> tuple[PreemptJob, ...]:
    return PartPairs().apply(snapshot, plan_of(snapshot, {}) if plan is None else plan).preempts


@pytest.mark.parametrize(("bounds", "slowdown", "together_s", "reason"), [
    ({"guest_bound": 1.3}, (1.0, 2.0), 75.0, "observed slowdown 2 over the bound 1.3, for 75 s"),
    ({"host_bound": 1.3}, (1.45, 1.0), 60.0, "observed slowdown 1.45 of job 1 over the bound 1.3, for 60 s"),
    ({"guest_bound": 1.3}, (1.0, 2.0), 59.9, ""),
    ({"guest_bound": 1.3}, (1.0, 1.3), 600.0, ""),
    ({"host_bound": 1.3}, (1.29, 9.0), 600.0, ""),
    ({}, (9.0, 9.0), 600.0, ""),
    ({"guest_bound": 1.3}, (np.nan, np.nan), 600.0, ""),
    ({"guest_bound": 1.3}, (1.0, 2.0), np.nan, ""),
    ({"guest_bound": 1.3, "preemptible": False}, (1.0, 2.0), 600.0, ""),
    ({"guest_bound": 1.3, "state": JobState.COMPLETING}, (1.0, 2.0), 600.0, ""),
])  # fmt: skip
def test_the_guest_leaves_beyond_a_bound_and_after_a_minute(
    bounds: dict[str, Any], slowdown: tuple[float, float], together_s: float, reason: str
) -> None:
    snapshot = observed(a_pair(**bounds), (*slowdown, np.nan), (together_s, together_s, np.nan))
    wanted = (PreemptJob(8, (), reason, parted_from=(1,)),) if reason else ()
    assert parted(snapshot) == wanted


@pytest.mark.parametrize("revocable", [True, False])
def test_a_guest_that_no_policy_moves_is_parted_or_people_are_told_why_not(*, revocable: bool) -> None:
    snapshot = observed(a_pair(host_bound=1.3, preemptible=False), (2.0, 1.0, np.nan), (90.0, 90.0, np.nan))
    sharing = replace(snapshot.sharing, revocable=np.array([False, revocable, False]))
    snapshot = replace(snapshot, sharing=sharing)
    assert [one.job_id for one in parted(snapshot)] == [8] * revocable
    told = PartPairs().explain_stays(snapshot, plan_of(snapshot, {}))
    assert list(told) == [1] * (not revocable)
    assert all("slowed more than 1.3 times, but guest 8 cannot be requeued" in why for why in told.values())


def test_nobody_leaves_twice_nor_for_one_who_leaves_nor_from_gpus_that_are_given() -> None:
    snapshot = observed(a_pair(guest_bound=1.3), (1.0, 2.0, np.nan), (90.0, 90.0, np.nan))
    for leaving in ([8], [1, 8]):
        plan = plan_of(snapshot, {}, leaving)
        assert parted(snapshot, plan) == plan.preempts
    assert not parted(snapshot, plan_of(snapshot, {9: (0,)}))
    assert len(parted(snapshot, plan_of(snapshot, {9: (1,)}))) == 1


def faulted(snapshot: SharingSnapshot, *pairs: tuple[int, int]) -> SharingSnapshot:
    return replace(snapshot, sharing=replace(snapshot.sharing, faulted=pairs))


def test_who_a_fault_may_have_ended_is_parted_at_once() -> None:
    why = "a fatal fault under MPS may have ended it and job 1 together"
    assert parted(faulted(a_pair(), (1, 8))) == (PreemptJob(8, (), why, parted_from=(1,)),)
    assert parted(faulted(a_pair(), (1, 9), (8, 9))) == ()
    assert parted(faulted(a_pair(state=JobState.COMPLETING), (1, 8))) == ()
    alone = on_slurm(running(1, 0), running(8, 1), waiting(9, 1))
    assert parted(faulted(alone, (1, 8))) == ()


def test_a_guest_that_cannot_save_stays_after_a_fault_too_and_people_are_told() -> None:
    snapshot = faulted(a_pair(preemptible=False), (1, 8))
    assert parted(snapshot) == ()
    told = PartPairs().explain_stays(snapshot, plan_of(snapshot, {}))
    assert sorted(told) == [1, 8]
    assert told[1].startswith("a fatal fault under MPS concerned it and job 8, but the guest cannot be requeued")


def test_of_several_guests_the_last_to_come_leaves_and_not_one_who_hosts() -> None:
    def seen(*rows: dict[str, Any]) -> SharingSnapshot:
        snapshot = on_slurm(running(1, 0, 1, max_slowdown=1.3, start_s=0.0), *rows, mechanism=IDEAL)
        return observed(snapshot, [2.0] + [1.0] * len(rows), [90.0] * (1 + len(rows)))

    first, second = running(7, 0, guest=True, start_s=20.0), running(8, 1, guest=True, start_s=10.0)
    assert [one.job_id for one in parted(seen(first, second))] == [7]
    assert [one.job_id for one in parted(seen(first, {**second, "start_s": 30.0, "job_id": 6}))] == [6]
    # Job 7 holds GPU 2 too, where job 9 is its guest.
    lodging = seen(running(7, 0, 2, guest=True, start_s=20.0), running(9, 2, guest=True, start_s=30.0))
    guest = np.array([False, False, True, False, True])
    lodging = replace(lodging, devices=replace(lodging.devices, guest=guest))
    assert parted(lodging) == ()


def test_a_plan_tells_of_it() -> None:
    snapshot = observed(a_pair(guest_bound=1.3), (1.0, 2.0, np.nan), (90.0, 90.0, np.nan))
    plan = pipeline_of(make_policy("fifo", {})).decide(snapshot)
    assert plan.notes.of(8).verdict is JobVerdict.PREEMPT
    assert plan.notes.of(1).verdict is JobVerdict.RUN
    assert (plan.facts["parted"], plan.facts["preempts"]) == (1.0, 1.0)
    assert PartPairs().apply(replace(snapshot, mechanism=IDEAL), empty_plan()).preempts == plan.preempts


@pytest.mark.parametrize("name", policy_names())
def test_whatever_the_policy_sodads_pipeline_parts(name: str) -> None:
    snapshot = observed(a_pair(guest_bound=1.3), (1.0, 2.0, np.nan), (90.0, 90.0, np.nan))
    pipeline = pipeline_of(make_policy(name, SETTINGS.get(name, {})))
    assert PartPairs() in pipeline.stages
    plan = pipeline.decide(snapshot)
    assert 8 in {one.job_id for one in plan.preempts}


def watched(rng: random.Random) -> SharingSnapshot:
    """A scene in which jobs run beside each other, with bounds and what was observed."""
    snapshot = draw_scene(rng)
    count = len(snapshot.jobs)
    bound = np.array([rng.choice((np.inf, 1.0, 1.2, 1.3, 2.0)) for _ in range(count)])
    snapshot = replace(snapshot, sharing=replace(snapshot.sharing, max_slowdown=bound))
    jobs_on = co_runners(snapshot)
    return observed(
        snapshot,
        [rng.choice((1.0, 1.1, 1.25, 1.5, 3.0, np.nan)) if jobs_on[row] else np.nan for row in range(count)],
        [rng.choice((1.0, 59.0, 60.0, 61.0, 500.0)) if jobs_on[row] else np.nan for row in range(count)],
    )


def co_runners(snapshot: SharingSnapshot) -> list[set[int]]:
    held = [set(snapshot.devices.of(row).tolist()) for row in range(len(snapshot.jobs))]
    return [
        {other for other, its in enumerate(held) if other != row and mine & its} for row, mine in enumerate(held)
    ]  # fmt: skip


@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_only_guests_of_pairs_with_a_broken_bound_leave_and_the_plan_can_still_be(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = watched(rng)
    policy = make_policy(name := rng.choice(("sjf-bsbf", "fifo", "srsf-share")), SETTINGS.get(name, {}))
    before = policy.decide(snapshot)
    plan = PartPairs().apply(snapshot, before)
    jobs, sharing, beside = snapshot.jobs, snapshot.sharing, co_runners(snapshot)
    with np.errstate(invalid="ignore"):
        broken = (sharing.observed_slowdown > sharing.max_slowdown) & (sharing.together_s >= MEASURED_AFTER_S)
    hosts = {
        int(row) for device in set(snapshot.devices.held.tolist())
        for row in [min(row for row in range(len(jobs)) if device in snapshot.devices.of(row))]
        if sum(device in snapshot.devices.of(other) for other in range(len(jobs))) > 1
    }  # fmt: skip
    assert plan.preempts[: len(before.preempts)] == before.preempts
    for one in plan.preempts[len(before.preempts) :]:
        row = jobs.row(one.job_id)
        assert jobs.preemptible[row]
        assert row not in hosts, "a host is preempted"
        assert {jobs.row(other) for other in one.parted_from} <= beside[row]
        assert broken[row] or any(broken[jobs.row(other)] for other in one.parted_from)
    assert find_guest_fault(snapshot, plan) is None


@pytest.mark.parametrize("name", policy_names())
@given(seed=st.integers(0, 10**6), mechanism=st.sampled_from((IDEAL, SLURM, None)))
@on_some_worlds
def test_no_policy_lets_jobs_meet_that_are_kept_apart(name: str, seed: int, mechanism: Any) -> None:
    rng = random.Random(seed)
    snapshot = draw_scene(rng)
    ids = snapshot.jobs.job_id.tolist()
    pairs = {(one, other) for one in ids for other in ids if one < other and rng.random() < 0.5}
    program = {job_id: rng.choice((-1, 0, 1, 2)) for job_id in ids}
    quarantined = {(one, other) for one in range(3) for other in range(one, 3) if rng.random() < 0.3}
    told = sorted(pairs)
    sharing = replace(
        snapshot.sharing, apart=tuple(told[::2]), faulted=tuple(told[1::2]), program=np.array([program[i] for i in ids]),
        quarantined=tuple(sorted(quarantined)),
    )  # fmt: skip
    pairs |= {
        (one, other) for one in ids for other in ids
        if one < other and tuple(sorted((program[one], program[other]))) in quarantined
    }  # fmt: skip
    snapshot = replace(snapshot, sharing=sharing, mechanism=mechanism or snapshot.mechanism)
    plan = make_policy(name, SETTINGS.get(name, {})).decide(snapshot)
    assert find_guest_fault(snapshot, plan) is None
    if not isinstance(plan, SharingPlan):
        return
    there: dict[int, list[int]] = {}
    leaving = {one.job_id for one in plan.preempts}
    for row, job_id in enumerate(ids):
        for device in snapshot.devices.of(row).tolist() if job_id not in leaving else ():
            there.setdefault(device, []).append(job_id)
    for job_id, devices in plan.devices.items():
        for device in devices:
            assert not any((min(one, job_id), max(one, job_id)) in pairs for one in there.get(device, ()))
            there.setdefault(device, []).append(job_id)


@pytest.mark.parametrize("name", policy_names())
@given(seed=st.integers(0, 10**6), mechanism=st.sampled_from((IDEAL, SLURM, None)))
@on_some_worlds
def test_no_policy_lets_anybody_join_a_job_that_was_slowed_too_much(name: str, seed: int, mechanism: Any) -> None:
    rng = random.Random(seed)
    snapshot = draw_scene(rng)
    behind_s = np.array([rng.choice((0.0, 20.0)) for _ in range(len(snapshot.jobs))])
    behind_s[snapshot.jobs.state != JobState.RUNNING] = 0.0
    sharing = replace(snapshot.sharing, behind_s=behind_s)
    snapshot = replace(snapshot, sharing=sharing, mechanism=mechanism or snapshot.mechanism)
    plan = make_policy(name, SETTINGS.get(name, {})).decide(snapshot)
    assert find_guest_fault(snapshot, plan) is None
    if not isinstance(plan, SharingPlan):
        return
    leaving = {one.job_id for one in plan.preempts}
    rows = [row for row in np.flatnonzero(behind_s).tolist() if int(snapshot.jobs.job_id[row]) not in leaving]
    closed = {device for row in rows for device in snapshot.devices.of(row).tolist()}
    for devices in plan.devices.values():
        assert closed.isdisjoint(devices)


def test_the_check_names_who_was_slowed_too_much() -> None:
    snapshot = on_slurm(running(1, 0), waiting(9, 1))
    for mechanism in (SLURM, IDEAL):
        sharing = replace(snapshot.sharing, behind_s=np.array([12.3, 0.0]))
        fault = find_guest_fault(replace(snapshot, sharing=sharing, mechanism=mechanism), plan_of(snapshot, {9: (0,)}))
        assert fault is not None
        assert fault.problem == "job 1 there was slowed beyond its bound, and makes up for 12 s first"


def test_the_check_names_whose_program_is_in_quarantine() -> None:
    snapshot = on_slurm(running(1, 0), waiting(9, 1))
    sharing = replace(snapshot.sharing, program=np.array([0, 1]), quarantined=((0, 1),))
    for mechanism in (SLURM, IDEAL):
        made = replace(snapshot, sharing=sharing, mechanism=mechanism)
        found = find_guest_fault(made, plan_of(made, {9: (0,)}))
        assert found is not None
        assert "its program and that of job 1 are in quarantine" in found.problem
        assert find_guest_fault(made, plan_of(made, {9: (1,)})) is None


def test_the_check_names_who_was_parted() -> None:
    snapshot = on_slurm(running(1, 0), waiting(9, 1))
    for mechanism in (SLURM, IDEAL):
        sharing = replace(snapshot.sharing, apart=((1, 9),))
        fault = find_guest_fault(replace(snapshot, sharing=sharing, mechanism=mechanism), plan_of(snapshot, {9: (0,)}))
        assert fault is not None
        assert fault.problem == "it was parted from job 1"


def test_srsf_share_pairs_somebody_else_instead() -> None:
    snapshot = on_slurm(
        running(1, 0, remaining_s=500.0), waiting(9, 1, remaining_s=100.0), waiting(10, 1, remaining_s=110.0),
        mechanism=IDEAL,
    )  # fmt: skip
    taken = np.ones(len(snapshot.devices), dtype=np.bool_)
    taken[0] = False
    snapshot = replace(snapshot, devices=replace(snapshot.devices, unavailable=taken))
    policy = make_policy("srsf-share", {"min_run_s": 1000.0})
    for apart, joins in (((), 9), (((1, 9),), 10)):
        barred = {"program": np.array([5, 5, 6]), "quarantined": ((5, 5),)} if apart else {}
        for kept in ({"apart": apart}, {"faulted": apart}, barred):
            plan = policy.decide(replace(snapshot, sharing=replace(snapshot.sharing, **kept)))
            assert isinstance(plan, SharingPlan)
            assert plan.devices == {joins: (0,)}
    behind = replace(snapshot.sharing, behind_s=np.array([5.0, 0.0, 0.0]))
    plan = policy.decide(replace(snapshot, sharing=behind))
    assert isinstance(plan, SharingPlan)
    assert plan.devices == {}


@pytest.mark.parametrize("name", policy_names())
@given(seed=st.integers(0, 10**6))
@on_some_worlds
def test_a_pair_that_could_not_meet_anyway_makes_no_difference(name: str, seed: int) -> None:
    rng = random.Random(seed)
    snapshot = replace(draw_scene(rng), mechanism=IDEAL)
    ids = snapshot.jobs.job_id.tolist()
    pair = tuple(sorted(rng.sample(ids, min(2, len(ids)))))
    shares = snapshot.sharing.shares & ~np.isin(snapshot.jobs.job_id, pair)
    plans = [
        make_policy(name, SETTINGS.get(name, {})).decide(
            replace(snapshot, sharing=replace(snapshot.sharing, shares=shares, apart=apart))
        )
        for apart in ((), (pair,) if len(pair) == 2 else ())
    ]  # fmt: skip
    free, parted_plan = [
        (plan.starts.tolist(), plan.preempts, plan.devices if isinstance(plan, SharingPlan) else {}) for plan in plans
    ]  # fmt: skip
    assert parted_plan == free
